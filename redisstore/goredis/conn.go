package goredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	core "github.com/holdfast-lock/holdfast/internal/redis"
)

// A conn is a go-redis client as package redis wants it.
type conn struct {
	client redis.UniversalClient
}

func (c *conn) Close() {}

// A once is a command that go-redis does not repeat by itself: the core does that, and must
// know when an answer was lost.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func command(ctx context.Context, how, script string, call *core.Call) once {
	args := make([]any, 0, 3+len(call.Keys)+len(call.Args))
	args = append(args, how, script, len(call.Keys))
	for _, key := range call.Keys {
		args = append(args, key)
	}
	for _, arg := range call.Args {
		args = append(args, arg)
	}
	return once{redis.NewCmd(ctx, args...)}
}

func evalSHA(ctx context.Context, call *core.Call) once {
	return command(ctx, "evalsha", call.Script.SHA, call)
}

func evalText(ctx context.Context, call *core.Call) once {
	return command(ctx, "eval", call.Script.Text, call)
}

func (c *conn) Eval(ctx context.Context, call core.Call) (core.Value, error) {
	if call.Replicas > 0 {
		out := c.confirmed(ctx, []core.Call{call})[0]
		return out.Value, out.Err
	}
	cmd := evalSHA(ctx, &call)
	c.client.Process(ctx, cmd)
	if isNoScript(cmd.Err()) {
		cmd = evalText(ctx, &call)
		c.client.Process(ctx, cmd)
	}
	return valueOf(cmd)
}

func (c *conn) Do(ctx context.Context, command, key string, args ...string) (core.Value, error) {
	all := make([]any, 0, 2+len(args))
	all = append(all, command, key)
	for _, arg := range args {
		all = append(all, arg)
	}
	cmd := once{redis.NewCmd(ctx, all...)}
	c.client.Process(ctx, cmd)
	return valueOf(cmd)
}

func (c *conn) EvalAll(ctx context.Context, calls []core.Call) []core.Outcome {
	if len(calls) == 0 {
		return nil
	}
	if calls[0].Replicas > 0 {
		return c.confirmed(ctx, calls)
	}
	cmds := make([]once, len(calls))
	c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range calls {
			cmds[i] = evalSHA(ctx, &calls[i])
			p.Process(ctx, cmds[i])
		}
		return nil
	})
	outcomes := make([]core.Outcome, len(calls))
	for i, cmd := range cmds {
		if isNoScript(cmd.Err()) {
			cmd = evalText(ctx, &calls[i])
			c.client.Process(ctx, cmd)
		}
		outcomes[i].Value, outcomes[i].Err = valueOf(cmd)
	}
	return outcomes
}

// confirmed runs scripts and waits until replicas have what they wrote, on one connection.
func (c *conn) confirmed(ctx context.Context, calls []core.Call) []core.Outcome {
	outcomes := make([]core.Outcome, len(calls))
	pinned := c.client.(*redis.Client).Conn() // New has seen to that
	defer pinned.Close()
	for i := range calls {
		cmd := evalSHA(ctx, &calls[i])
		pinned.Process(ctx, cmd)
		if isNoScript(cmd.Err()) {
			cmd = evalText(ctx, &calls[i])
			pinned.Process(ctx, cmd)
		}
		outcomes[i].Value, outcomes[i].Err = valueOf(cmd)
	}
	want := calls[0].Replicas
	got, err := pinned.Wait(ctx, want, calls[0].Patience).Result()
	if err == nil && int(got) < want {
		err = &core.ReplicasError{Want: want, Got: int(got)}
	}
	if err != nil {
		for i := range outcomes {
			outcomes[i].Err = err
		}
	}
	return outcomes
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// valueOf reads a script's answer.
func valueOf(cmd once) (core.Value, error) {
	result, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return core.Value{}, nil
	}
	if err != nil {
		return core.Value{}, err
	}
	return value(result), nil
}

func value(v any) core.Value {
	switch v := v.(type) {
	case int64:
		return core.Value{Kind: core.Int, Int: v}
	case string:
		return core.Value{Kind: core.Text, Text: v}
	case []any:
		list := core.Value{Kind: core.List, List: make([]core.Value, len(v))}
		for i := range v {
			list.List[i] = value(v[i])
		}
		return list
	}
	return core.Value{}
}

func (c *conn) Subscribe(ctx context.Context, channel string, shard bool, on func(), message func(string)) error {
	subscribe := c.client.Subscribe
	if shard {
		subscribe = c.client.SSubscribe
	}
	sub := subscribe(ctx, channel)
	var once sync.Once
	end := func() { once.Do(func() { sub.Close() }) } // which ends Receive; a context does not
	defer end()
	defer context.AfterFunc(ctx, end)()
	for {
		received, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		switch m := received.(type) {
		case *redis.Subscription:
			if strings.HasSuffix(m.Kind, "subscribe") && !strings.Contains(m.Kind, "un") {
				on()
			}
		case *redis.Message:
			message(m.Payload)
		}
	}
}

func (c *conn) Scan(ctx context.Context, server int, cursor uint64, match string, count int) (keys []string, next uint64, servers int, err error) {
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		keys, next, err = c.client.Scan(ctx, cursor, match, int64(count)).Result()
		return keys, next, 1, err
	}
	primaries := make(map[string]*redis.Client)
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		primaries[node.Options().Addr] = node
		return nil
	})
	if err != nil || server >= len(primaries) {
		return nil, 0, len(primaries), err
	}
	addr := slices.Sorted(maps.Keys(primaries))[server]
	keys, next, err = primaries[addr].Scan(ctx, cursor, match, int64(count)).Result()
	if err != nil {
		err = fmt.Errorf("%s: %w", addr, err)
	}
	return keys, next, len(primaries), err
}
