// Package goredis keeps locks on the Redis servers of a go-redis client that the program already
// has. It translates the options of the client and opens the store of package redisstore with
// them: the same keys, scripts, promises and speed. Programs that use either package exclude each
// other. The documentation of package redisstore describes what Redis promises.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	s, err := goredis.New(ctx, client)
//	if err != nil { … }
//	c, err := holdfast.New(s)
//
// # Connections
//
// The store opens its own connections, one to each server in most cases. It does not borrow
// connections of the client: the client's pool may be used up when a lease must be renewed, and the
// client does not stop a command when its context ends. Hooks of the client, including those for
// dialing, do not see the connections and commands of the store.
//
// Every connection is made by the client's dialer, or by the one that go-redis makes from its options. A call does
// not wait longer than 1.5 s for the dialer. Through Sentinels, New waits longer by the client's ReadTimeout,
// because go-redis asks all Sentinels at first and waits that long for one that hangs.
//
// With Sentinels, the client finds the primary for each new connection. A connection that is used checks every 2 s
// whether the Sentinels name another primary, by dialing once more. If the Sentinel that go-redis asks hangs, it
// asks the others after all retries have timed out. With the defaults of redis.FailoverOptions, that takes 12 s or
// more, depending on the version of go-redis, and less with a shorter ReadTimeout and fewer MaxRetries. The context
// of a Dialer ends after a minute. With TLS, set DialTimeout too: without it, go-redis leaves a goroutine and a
// connection behind for each dial to a server that hangs.
//
// # Options of the client
//
// This is what becomes of the fields of redis.Options, redis.ClusterOptions and
// redis.FailoverOptions. New returns ErrInvalid if a refused one is set.
//
//	Addr, Addrs, Network, Dialer, DB, ClientName, Protocol      used
//	Username, Password                                          used
//	CredentialsProvider                                         used: asked for every new connection
//	CredentialsProviderContext                                  used: asked for every new connection; it has 3 s
//	StreamingCredentialsProvider                                used: asked for every new connection. If the
//	                                                            credentials change, connections stay open until the
//	                                                            server ends them
//	DialTimeout, TLSConfig, MasterName, SentinelAddrs           used by the client's own dialer
//	SentinelUsername, SentinelPassword                          used by the client's own dialer
//	ReplicaOnly                                                 used by the client's own dialer: calls fail, because
//	                                                            locks cannot be taken at a replica
//	OnConnect                                                   refused: it needs a connection of go-redis
//	Limiter                                                     refused: it would end leases if it refused their
//	                                                            renewal
//	ReadOnly, RouteByLatency, RouteRandomly                     refused: replicas learn of a lock late
//	ClusterSlots                                                refused: the servers may not be a Cluster, as with
//	                                                            NewFailoverClusterClient
//	NewClient                                                   refused: set Dialer, TLSConfig and the like instead
//	ReadTimeout, WriteTimeout                                   ignored: a call ends with its context, and after 3 s
//	                                                            without a reply of a single server
//	ContextTimeoutEnabled                                       ignored: contexts are always honored
//	MaxRetries, MinRetryBackoff, MaxRetryBackoff, MaxRedirects  ignored: see holdfast.Retry
//	DialerRetries, DialerRetryTimeout, DialerRetryBackoff       ignored: see holdfast.Retry
//	MaxConcurrentDials, PoolTimeout, PoolFIFO, PoolSize         ignored: there is no pool
//	MinIdleConns, MaxIdleConns, MaxActiveConns                  ignored: there is no pool
//	ConnMaxIdleTime, ConnMaxLifetime, ConnMaxLifetimeJitter     ignored: there is no pool
//	PipelinePoolSize, AutoPipelineOptions                       ignored: calls are always pipelined
//	PipelineReadBufferSize, PipelineWriteBufferSize             ignored
//	ReadBufferSize, WriteBufferSize, RouteByLatencyTolerance    ignored
//	DisableIdentity, DisableIndentity                           ignored: CLIENT SETINFO is never sent
//	IdentitySuffix, UnstableResp3, NodeAddress                  ignored
//	PushNotificationProcessor, ShardPicker                      ignored
//	MaintNotificationsConfig, FailingTimeoutSeconds             ignored
//	ClusterStateReloadInterval                                  ignored: the nodes are looked up every 5 s and after
//	                                                            an error
//	DisableRoutingPolicies, UseDisconnectedReplicas             ignored
//	ClientSideCache, ClientSideCacheConfig                      ignored: a lock is never read from a cache
//	ClientSideCacheStrategy, ClientSideCacheCoalesceMisses      ignored
//	ClientSideCacheRefreshOnInvalidate                          ignored
//	ClientSideCacheInvalidationBatchWindow                      ignored
//
// The package needs go-redis v9.9 or later.
package goredis
