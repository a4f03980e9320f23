package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/await"
	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
)

// A conn is a rediscore.Conn on a rueidis client.
type conn struct {
	client rueidis.Client
	dog    *watchdog    // bounds calls without a deadline; nil if the core sets deadlines
	owned  *connections // nil if the client belongs to the program
	waits  bool         // calls wait for replicas, so a connection may be silent for long
}

func (c *conn) Close() {
	if c.owned != nil {
		c.owned.closeAll(true) // before Close, because the library sends a PING before it closes a connection
		c.client.Close()
	}
}

func (c *conn) isCluster() bool { return c.client.Mode() == rueidis.ClientModeCluster }

// command returns the command for a call, with the text of its script, which the server then knows, if text
// is set.
//
// Commands must arrive in the order in which they are given: a clean-up must not overtake the request that it
// undoes. If the library has several connections, it chooses one at random, unless it knows of no keys of the
// command. So it gets the keys only on a Cluster, where it needs them.
func (c *conn) command(call *rediscore.Call, text bool) rueidis.Completed {
	verb := []string{call.Command}
	if call.Script != nil {
		verb = []string{"EVALSHA", call.Script.SHA, strconv.Itoa(len(call.Keys))}
		if text {
			verb[0], verb[1] = "EVAL", call.Script.Text
		}
	}
	command := c.client.B().Arbitrary(verb...)
	if c.isCluster() {
		command = command.Keys(call.Keys...)
	} else {
		command = command.Args(call.Keys...)
	}
	return command.Args(call.Args...).Build()
}

// A cancellable is a context that hides its deadline. Otherwise the library may ignore a cancellation until the
// deadline, and then it closes the connection.
type cancellable struct{ context.Context }

func (cancellable) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// suspectAfter is how much time a call must have had before its deadline counts as a sign that the connection is
// dead. It is longer than a round trip to most servers. A process without CPU time notices a short deadline late,
// and has not read the replies. A request to take a lock goes on after its deadline, and has suspectLate: programs
// choose that deadline, and a Leave on another connection could overtake the request.
const (
	suspectAfter = 100 * time.Millisecond
	suspectLate  = time.Second
)

// call runs fn with a context for the library. It returns when ctx ends, although the library does not honor
// a context while it connects for another call or asks a Cluster for its slots. If a call reaches its caller's
// deadline, connections that have been silent since it began are closed, so that the next call gets another.
func call[T any](ctx context.Context, c *conn, fn func(ctx context.Context) (T, error)) (value T, err error) {
	if c.dog != nil {
		defer c.dog.end(c.dog.begin())
	}
	if ctx.Done() == nil {
		return fn(ctx)
	}
	begin := time.Now()
	if c.owned != nil && c.client.Mode() == rueidis.ClientModeStandalone && c.owned.none() {
		// The library would end the attempt to connect with the context of the first call that needs it, and
		// other calls share it. Calls with short deadlines would never connect.
		ping := func() (rueidis.RedisResult, error) {
			return c.client.Do(context.Background(), c.client.B().Ping().Build()), nil
		}
		if _, err := await.Call(ctx, ping, nil); err != nil {
			return value, err
		}
	}
	caller, goesOn := rediscore.Caller(ctx)
	deadline, bounded := caller.Deadline()
	switch {
	case !bounded && c.dog == nil: // a batch
		deadline = begin.Add(callTimeout)
	case bounded && goesOn && deadline.Sub(begin) < suspectLate:
		deadline = begin.Add(suspectLate)
	}
	if c.owned != nil && !c.waits && deadline.Sub(begin) >= suspectAfter {
		timer := time.AfterFunc(time.Until(deadline), func() { c.owned.closeUnanswered(begin) })
		defer func() {
			if timer.Stop() && !time.Now().Before(deadline) {
				c.owned.closeUnanswered(begin)
			}
		}()
	}
	return await.Call(ctx, func() (T, error) { return fn(cancellable{ctx}) }, nil)
}

func (c *conn) Run(ctx context.Context, calls ...rediscore.Call) []rediscore.Reply {
	if len(calls) == 0 {
		return nil
	}
	timeout := rediscore.ReplicaTimeout(ctx)
	replies, err := call(ctx, c, func(ctx context.Context) ([]rediscore.Reply, error) {
		if calls[0].Replicas > 0 {
			return c.confirmed(ctx, calls, timeout)
		}
		return c.pipeline(ctx, c.client, calls), nil
	})
	if err != nil {
		return slices.Repeat([]rediscore.Reply{{Err: err}}, len(calls))
	}
	return replies
}

func (c *conn) pipeline(ctx context.Context, to rueidis.CoreClient, calls []rediscore.Call) []rediscore.Reply {
	if len(calls) == 1 {
		return []rediscore.Reply{c.reply(ctx, to, &calls[0], to.Do(ctx, c.command(&calls[0], false)))}
	}
	commands := make(rueidis.Commands, len(calls))
	for i := range calls {
		commands[i] = c.command(&calls[i], false)
	}
	replies := make([]rediscore.Reply, len(calls))
	for i, result := range to.DoMulti(ctx, commands...) {
		replies[i] = c.reply(ctx, to, &calls[i], result)
	}
	return replies
}

// reply returns the reply to a call. It sends the call again if the server does not know the script.
func (c *conn) reply(
	ctx context.Context, to rueidis.CoreClient, call *rediscore.Call, result rueidis.RedisResult,
) rediscore.Reply {
	v, err := result.ToAny()
	if e, ok := rueidis.IsRedisErr(err); ok && e.IsNoScript() {
		v, err = to.Do(ctx, c.command(call, true)).ToAny()
	}
	if rueidis.IsRedisNil(err) {
		return rediscore.Reply{}
	}
	if err != nil && c.owned != nil && c.client.Mode() == rueidis.ClientModeStandalone && isReadOnly(err.Error()) {
		c.owned.closeAll(false) // it was a primary; its address may lead to the new one by now
	}
	return rediscore.Reply{Value: v, Err: err}
}

// isReadOnly reports whether an error is that of a replica. Before Redis 7, an error inside a script has a prefix,
// of which the library removes "ERR". Other errors may contain the name of a lock.
func isReadOnly(text string) bool {
	return strings.HasPrefix(text, "READONLY") ||
		strings.HasPrefix(text, "Error running script") && strings.Contains(text, "-READONLY ")
}

// confirmed makes calls and waits until replicas have their writes, on a separate connection, because WAIT
// delays all later commands of a connection. The library follows no redirection of a Cluster there. Calls to
// a Cluster come one by one: see rediscore.
func (c *conn) confirmed(ctx context.Context, calls []rediscore.Call, timeout time.Duration) (replies []rediscore.Reply, err error) {
	addr, asking := "", false
	run := func(d rueidis.DedicatedClient) error {
		var to rueidis.CoreClient = d
		if asking {
			to = asker{d}
		}
		replies = c.pipeline(ctx, to, calls)
		if addr, asking = redirection(replies[0].Err); addr != "" {
			return nil // nothing was written
		}
		want := calls[0].Replicas
		// The library does not notice a lost connection during WAIT, and ctx may have no deadline.
		ctx, cancel := context.WithTimeout(ctx, timeout+answerTimeout)
		defer cancel()
		got, err := d.Do(ctx, d.B().Wait().Numreplicas(int64(want)).Timeout(max(1, timeout.Milliseconds())).Build()).AsInt64()
		if err == nil && int(got) < want {
			err = &rediscore.ReplicasError{Want: want, Got: int(got)}
		}
		return err
	}
	if err = c.client.Dedicated(run); addr != "" {
		if node := c.client.Nodes()[addr]; node != nil { // otherwise the library learns of it now, for the next call
			err = node.Dedicated(run)
		}
	}
	return replies, err
}

// redirection returns the address, if any, to which a Cluster redirects a call, and whether the slot is still
// being moved there.
func redirection(err error) (addr string, asking bool) {
	if e, ok := rueidis.IsRedisErr(err); ok {
		if addr, asking = e.IsAsk(); !asking {
			addr, _ = e.IsMoved()
		}
	}
	return addr, asking
}

// An asker sends single commands for a slot that is being moved to its server.
type asker struct{ rueidis.DedicatedClient }

func (a asker) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if result := a.DedicatedClient.Do(ctx, a.B().Asking().Build()); result.Error() != nil {
		return result
	}
	return a.DedicatedClient.Do(ctx, command)
}

// unsubscribeTimeout bounds the time to unsubscribe on a hung connection.
const unsubscribeTimeout = time.Second

func (c *conn) Subscribe(ctx context.Context, channel string, on func(), message func(string)) error {
	subscribe := c.client.B().Subscribe().Channel(channel).Build()
	if c.isCluster() {
		subscribe = c.client.B().Ssubscribe().Channel(channel).Build()
	}
	listen := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" || s.Kind == "ssubscribe" {
			on()
		}
	})
	// Without this the connection would stay subscribed, and it may be the program's own.
	listen = rueidis.WithOnReceiveReturnHook(listen, func(err error, same rueidis.CommandClient) error {
		unsubscribe := same.B().Unsubscribe().Channel(channel).Build()
		if c.isCluster() {
			unsubscribe = same.B().Sunsubscribe().Channel(channel).Build()
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTimeout)
		defer cancel()
		same.Do(bounded, unsubscribe)
		return err
	})
	_, err := await.Call(ctx, func() (struct{}, error) {
		return struct{}{}, c.client.Receive(listen, subscribe, func(m rueidis.PubSubMessage) { message(m.Message) })
	}, nil)
	return err
}

// roleTimeout bounds the time that a node of a Cluster has to say whether it is a primary.
const roleTimeout = time.Second

// Servers returns the only server, or the primaries of a Cluster.
func (c *conn) Servers(ctx context.Context) ([]rediscore.Server, error) {
	return call(ctx, c, func(ctx context.Context) (servers []rediscore.Server, err error) {
		nodes := c.client.Nodes()
		addrs := slices.Sorted(maps.Keys(nodes))
		if !c.isCluster() {
			return []rediscore.Server{c.server(strings.Join(addrs, ","), c.client, len(addrs) > 1)}, nil
		}
		short, cancel := context.WithTimeout(ctx, roleTimeout)
		defer cancel()
		roles, errs := make([]string, len(addrs)), make([]error, len(addrs))
		var wg sync.WaitGroup
		for i, addr := range addrs {
			wg.Go(func() {
				roles[i], errs[i] = await.Call(short, func() (string, error) {
					role, err := nodes[addr].Do(cancellable{short}, c.client.B().Role().Build()).ToArray()
					if err != nil || len(role) == 0 {
						return "", err
					}
					return role[0].ToString()
				}, nil)
			})
		}
		wg.Wait()
		for i, addr := range addrs {
			if errs[i] != nil {
				err = cmp.Or(err, fmt.Errorf("%s: %w", addr, errs[i]))
			}
			if roles[i] == "master" {
				servers = append(servers, c.server(addr, nodes[addr], false))
			}
		}
		if err != nil && hasAll(ctx, servers) {
			err = nil // only replicas did not reply
		}
		return servers, err
	})
}

// hasAll reports whether servers are all primaries of a Cluster that have slots.
func hasAll(ctx context.Context, servers []rediscore.Server) bool {
	if len(servers) == 0 {
		return false
	}
	reply, _ := servers[0].Do(ctx, "CLUSTER", "SLOTS") // [[first, last, [host, port, …], replicas…], …]
	ranges, _ := reply.([]any)
	return len(ranges) > 0 && !slices.ContainsFunc(ranges, func(slots any) bool {
		addr := ""
		if slots, _ := slots.([]any); len(slots) > 2 {
			if primary, _ := slots[2].([]any); len(primary) > 1 {
				addr = net.JoinHostPort(fmt.Sprint(primary[0]), fmt.Sprint(primary[1]))
			}
		}
		return !slices.ContainsFunc(servers, func(s rediscore.Server) bool { return s.Addr == addr })
	})
}

func (c *conn) server(addr string, client rueidis.Client, readsReplicas bool) rediscore.Server {
	return rediscore.Server{Addr: addr, ReadsReplicas: readsReplicas, Do: func(ctx context.Context, args ...string) (any, error) {
		return call(ctx, c, func(ctx context.Context) (any, error) {
			return client.Do(ctx, client.B().Arbitrary(args...).Build()).ToAny()
		})
	}}
}
