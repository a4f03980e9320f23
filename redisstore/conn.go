package redisstore

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
)

// A conn is a rueidis client as package redis wants it.
type conn struct {
	client rueidis.Client
	dog    *watchdog    // bounds calls without a deadline; nil if contexts do
	owned  *connections // nil if the client belongs to the program
}

func (c *conn) Close() {
	if c.owned != nil {
		c.client.Close()
		c.owned.closeAll(true)
	}
}

// command makes a command. Commands must arrive in the order in which they are given: what
// undoes a request that was given up must not overtake it. The library keeps the order on a
// connection and chooses one of several at random, unless a command has no keys for all it
// knows. Only on a Cluster must it know them.
func (c *conn) command(verb []string, keys, args []string) rueidis.Completed {
	command := c.client.B().Arbitrary(verb...)
	if c.client.Mode() == rueidis.ClientModeCluster {
		command = command.Keys(keys...)
	} else {
		command = command.Args(keys...)
	}
	return command.Args(args...).Build()
}

func (c *conn) evalSHA(call *rediscore.Call) rueidis.Completed {
	return c.command([]string{"EVALSHA", call.Script.SHA, strconv.Itoa(len(call.Keys))}, call.Keys, call.Args)
}

// evalText sends the whole script, which the server knows from then on.
func (c *conn) evalText(call *rediscore.Call) rueidis.Completed {
	return c.command([]string{"EVAL", call.Script.Text, strconv.Itoa(len(call.Keys))}, call.Keys, call.Args)
}

// A cancellable is a context that hides its deadline. With one the library may wait for an
// answer until then, whether the context was cancelled meanwhile or not.
type cancellable struct{ context.Context }

func (cancellable) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func noticed(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx // as fast as it can be
	}
	return cancellable{ctx}
}

func (c *conn) Eval(ctx context.Context, call rediscore.Call) (rediscore.Value, error) {
	if call.Replicas > 0 {
		out := c.confirmed(ctx, []rediscore.Call{call})[0]
		return out.Value, out.Err
	}
	if c.dog != nil {
		defer c.dog.end(c.dog.begin())
	}
	v, err := valueOf(c.client.Do(noticed(ctx), c.evalSHA(&call)))
	if isNoScript(err) {
		return valueOf(c.client.Do(noticed(ctx), c.evalText(&call)))
	}
	return v, err
}

func (c *conn) Do(ctx context.Context, command, key string, args ...string) (rediscore.Value, error) {
	if c.dog != nil {
		defer c.dog.end(c.dog.begin())
	}
	return valueOf(c.client.Do(noticed(ctx), c.command([]string{command}, []string{key}, args)))
}

func (c *conn) EvalAll(ctx context.Context, calls []rediscore.Call) []rediscore.Outcome {
	if len(calls) == 0 {
		return nil
	}
	if calls[0].Replicas > 0 {
		return c.allConfirmed(ctx, calls)
	}
	if c.dog != nil {
		defer c.dog.end(c.dog.begin())
	}
	commands := make(rueidis.Commands, len(calls))
	for i := range calls {
		commands[i] = c.evalSHA(&calls[i])
	}
	outcomes := make([]rediscore.Outcome, len(calls))
	for i, result := range c.client.DoMulti(noticed(ctx), commands...) {
		v, err := valueOf(result)
		if isNoScript(err) {
			v, err = valueOf(c.client.Do(noticed(ctx), c.evalText(&calls[i])))
		}
		outcomes[i] = rediscore.Outcome{Value: v, Err: err}
	}
	return outcomes
}

// allConfirmed is confirmed for calls of any slots.
func (c *conn) allConfirmed(ctx context.Context, calls []rediscore.Call) []rediscore.Outcome {
	if c.client.Mode() != rueidis.ClientModeCluster {
		return c.confirmed(ctx, calls)
	}
	outcomes := make([]rediscore.Outcome, 0, len(calls))
	for i := range calls {
		outcomes = append(outcomes, c.confirmed(ctx, calls[i:i+1])...)
	}
	return outcomes
}

// confirmed runs scripts and waits until replicas have what they wrote. That takes a
// connection of its own: WAIT holds up all that is behind it.
func (c *conn) confirmed(ctx context.Context, calls []rediscore.Call) []rediscore.Outcome {
	outcomes := make([]rediscore.Outcome, len(calls))
	err := c.client.Dedicated(func(d rueidis.DedicatedClient) error {
		commands := make(rueidis.Commands, len(calls), len(calls)+1)
		for i := range calls {
			commands[i] = c.evalSHA(&calls[i])
		}
		for i, result := range d.DoMulti(ctx, commands...) {
			v, err := valueOf(result)
			if isNoScript(err) {
				v, err = valueOf(d.Do(ctx, c.evalText(&calls[i])))
			}
			outcomes[i] = rediscore.Outcome{Value: v, Err: err}
		}
		want, patience := calls[0].Replicas, max(1, calls[0].Patience.Milliseconds())
		got, err := d.Do(ctx, d.B().Wait().Numreplicas(int64(want)).Timeout(patience).Build()).AsInt64()
		if err == nil && int(got) < want {
			err = &rediscore.ReplicasError{Want: want, Got: int(got)}
		}
		return err
	})
	if err != nil {
		for i := range outcomes {
			outcomes[i].Err = err
		}
	}
	return outcomes
}

func isNoScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}

// valueOf reads a script's answer.
func valueOf(result rueidis.RedisResult) (rediscore.Value, error) {
	m, err := result.ToMessage()
	if err != nil {
		if rueidis.IsRedisNil(err) {
			return rediscore.Value{}, nil
		}
		return rediscore.Value{}, err
	}
	return value(&m), nil
}

func value(m *rueidis.RedisMessage) rediscore.Value {
	switch {
	case m.IsInt64():
		n, _ := m.ToInt64()
		return rediscore.Value{Kind: rediscore.Int, Int: n}
	case m.IsString():
		s, _ := m.ToString()
		return rediscore.Value{Kind: rediscore.Text, Text: s}
	case m.IsArray():
		array, _ := m.ToArray()
		v := rediscore.Value{Kind: rediscore.List, List: make([]rediscore.Value, len(array))}
		for i := range array {
			v.List[i] = value(&array[i])
		}
		return v
	}
	return rediscore.Value{}
}

// unsubscribeTime bounds how long it takes to stop listening on a connection that hangs.
const unsubscribeTime = time.Second

func (c *conn) Subscribe(ctx context.Context, channel string, shard bool, on func(), message func(string)) error {
	subscribe := c.client.B().Subscribe().Channel(channel).Build()
	if shard {
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
		if shard {
			unsubscribe = same.B().Sunsubscribe().Channel(channel).Build()
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTime)
		defer cancel()
		same.Do(bounded, unsubscribe)
		return err
	})
	return c.client.Receive(listen, subscribe, func(m rueidis.PubSubMessage) { message(m.Message) })
}

func (c *conn) Scan(ctx context.Context, server int, cursor uint64, match string, count int) (keys []string, next uint64, servers int, err error) {
	primaries, err := c.primaries(ctx)
	if err != nil || server >= len(primaries) {
		return nil, 0, len(primaries), err
	}
	client := primaries[server]
	page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(match).Count(int64(count)).Build()).AsScanEntry()
	return page.Elements, page.Cursor, len(primaries), err
}

// primaries are the servers that have keys, in a stable order.
func (c *conn) primaries(ctx context.Context) ([]rueidis.Client, error) {
	if c.client.Mode() != rueidis.ClientModeCluster {
		return []rueidis.Client{c.client}, nil
	}
	nodes := c.client.Nodes()
	var primaries []rueidis.Client
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		role, err := nodes[addr].Do(ctx, c.client.B().Role().Build()).ToArray()
		if err != nil {
			return nil, err
		}
		if len(role) > 0 {
			if name, _ := role[0].ToString(); name == "master" {
				primaries = append(primaries, nodes[addr])
			}
		}
	}
	return primaries, nil
}
