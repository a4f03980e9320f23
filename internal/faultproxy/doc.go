// Package faultproxy puts a TCP proxy with faults between a client and a server.
//
// Faults are set per direction, at any time, on connections that live:
//
//	proxy := faultproxy.Start(t, server.Addr())
//	proxy.ToServer.Hold()  // requests wait in the proxy
//	proxy.ToClient.Drop()  // replies are swallowed
//	proxy.Heal()           // what was held arrives, on the same connections
//
// A proxy that holds is a network partition that heals: neither side sees its connection
// end. "Done at the server, reply lost" is HoldRepliesAfter.
//
// The end of a connection follows its bytes: it waits where they are held, and where they
// are dropped too, until the proxy is healed.
package faultproxy
