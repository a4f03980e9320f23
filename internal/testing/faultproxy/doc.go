// Package faultproxy is a TCP proxy that injects faults between a client and a server.
//
// Faults are set per direction. They can be set at any time and affect open connections too:
//
//	proxy := faultproxy.Start(t, server.Addr())
//	proxy.ToServer.Hold()  // requests wait in the proxy
//	proxy.ToClient.Drop()  // replies are lost
//	proxy.Heal()           // held bytes arrive, on the same connections
//
// Hold and Heal simulate a network partition that heals: neither side sees its connection
// end. HoldRepliesAfter and DropRepliesAfter simulate a request that the server executes but
// whose reply is late or lost.
//
// The end of a connection is forwarded after its bytes. While bytes are held or dropped, the
// end is held until the proxy is healed.
package faultproxy
