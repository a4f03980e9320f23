package goredis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
)

// A conn is a rediscore.Conn on the servers of a go-redis client.
type conn struct {
	router *router
}

// Close closes the connections of the store. The program's client stays open.
func (c *conn) Close() { c.router.close() }

// A command is one command of a request.
type command struct {
	args     []any // its name comes first
	text     []any // to send instead to a server that does not know the script; nil if there is none
	key      string
	locks    []string
	replicas int

	server *server // where it is sent to
	asking bool    // send ASKING first, because the slot is still migrating to that server
	cmd    *redis.Cmd
	err    error // other than an error reply
}

func newCommand(call *rediscore.Call) *command {
	c := &command{key: call.Keys[0], replicas: call.Replicas}
	var rest []any
	if call.Script != nil {
		rest = append(rest, len(call.Keys))
	}
	for _, key := range call.Keys {
		rest = append(rest, key)
		if isLock(key) {
			c.locks = append(c.locks, key)
		}
	}
	for _, arg := range call.Args {
		rest = append(rest, arg)
	}
	if call.Script == nil {
		c.args = append([]any{call.Command}, rest...)
		return c
	}
	c.args = append([]any{"evalsha", call.Script.SHA}, rest...)
	c.text = append([]any{"eval", call.Script.Text}, rest...)
	return c
}

// isLock reports whether a key is the key of a lock, for which the order of commands matters.
func isLock(key string) bool {
	rest, _ := strings.CutPrefix(key, rediscore.Prefix)
	if strings.HasPrefix(rest, "{") {
		_, rest, _ = strings.Cut(rest, "}:")
	}
	return strings.HasPrefix(rest, "lock:")
}

// Run makes calls. Order matters only for a single call, because several calls at once only read
// or renew.
func (c *conn) Run(ctx context.Context, calls ...rediscore.Call) []rediscore.Reply {
	commands := make([]*command, len(calls))
	for i := range calls {
		commands[i] = newCommand(&calls[i])
		if len(calls) > 1 {
			commands[i].locks = nil
		}
	}
	c.run(ctx, commands...)
	replies := make([]rediscore.Reply, len(calls))
	for i, command := range commands {
		if replies[i].Err = command.err; command.err == nil {
			replies[i] = replyOf(command.cmd)
		}
	}
	return replies
}

// run runs commands. Commands for different servers run concurrently. It sends the text of a
// script to a server that does not know it, and follows redirections to the server that has the
// slot.
func (c *conn) run(ctx context.Context, commands ...*command) {
	for range maxTries {
		byServer := make(map[*server][]*command)
		for _, command := range commands {
			if command.server == nil {
				command.server, command.err = c.router.find(ctx, command.key)
			}
			if command.err == nil {
				byServer[command.server] = append(byServer[command.server], command)
			}
		}
		if len(byServer) == 1 {
			for s, commands := range byServer {
				c.exchange(ctx, s, commands)
			}
		} else {
			var wg sync.WaitGroup
			for s, commands := range byServer {
				wg.Go(func() { c.exchange(ctx, s, commands) })
			}
			wg.Wait()
		}
		var again []*command
		for _, command := range commands {
			if c.again(ctx, command) {
				again = append(again, command)
			}
		}
		if commands = again; len(commands) == 0 {
			return
		}
	}
}

// exchange sends commands to a server and waits for the replies.
func (c *conn) exchange(ctx context.Context, s *server, commands []*command) {
	r := new(request)
	for _, command := range commands {
		r.locks = append(r.locks, command.locks...)
		if command.asking {
			r.cmds = append(r.cmds, redis.NewCmd(ctx, "asking"))
		}
		command.cmd = redis.NewCmd(ctx, command.args...)
		r.cmds = append(r.cmds, command.cmd)
	}
	var wait *redis.IntCmd
	if want := commands[0].replicas; want > 0 { // WAIT must be sent on the same connection
		timeout := rediscore.ReplicaTimeout(ctx)
		wait = redis.NewIntCmd(ctx, "wait", want, max(1, timeout.Milliseconds()))
		r.extra = timeout
		r.then = func() (cmds []redis.Cmder) {
			for _, command := range commands {
				if isNoScript(command.cmd.Err()) {
					command.sendText(ctx)
					cmds = append(cmds, command.cmd)
				}
			}
			return append(cmds, wait)
		}
	}
	err := s.do(ctx, r)
	for _, command := range commands {
		switch {
		case err != nil:
			command.err = err
		case command.cmd.Err() != nil && !isReply(command.cmd.Err()):
			command.err = command.cmd.Err()
		}
		if command.err != nil && (r.overdue || ctx.Err() == nil) {
			c.router.failed(s, command.key)
		}
	}
	if err != nil || wait == nil {
		return
	}
	got, err := wait.Result()
	if err == nil && int(got) < commands[0].replicas {
		err = &rediscore.ReplicasError{Want: commands[0].replicas, Got: int(got)}
	}
	for _, command := range commands {
		if command.err == nil && !isRedirect(command.cmd.Err()) {
			command.err = err
		}
	}
}

// isRedirect reports whether a server replied that a command must be sent to another server.
func isRedirect(err error) bool {
	_, moved := movedTo(err)
	_, ask := askAt(err)
	return moved || ask
}

// sendText prepares a command to be sent with the text of its script, which the server knows from
// then on.
func (c *command) sendText(ctx context.Context) {
	c.args, c.text = c.text, nil
	c.cmd = redis.NewCmd(ctx, c.args...)
}

// again reports whether a command must be sent again, and prepares it for that.
func (c *conn) again(ctx context.Context, command *command) bool {
	if command.err != nil {
		return false
	}
	err := command.cmd.Err()
	if isNoScript(err) && command.text != nil {
		command.sendText(ctx)
		return true
	}
	if c.router.cluster == nil {
		return false
	}
	if addr, ok := movedTo(err); ok {
		command.asking = false
		command.server, command.err = c.router.moved(command.server, command.key, addr)
		return command.err == nil
	}
	if addr, ok := askAt(err); ok {
		command.asking = true
		command.server, command.err = c.router.at(command.server, addr)
		return command.err == nil
	}
	return false
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

func replyOf(cmd *redis.Cmd) rediscore.Reply {
	v, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return rediscore.Reply{}
	}
	return rediscore.Reply{Value: v, Err: err}
}

// Subscribe listens on the hub of a server. It listens again when the connection is lost, and
// follows the channel when a failover or a resharding moves it. It returns the error of a server
// that refuses the subscription, for example for lack of rights.
func (c *conn) Subscribe(ctx context.Context, channel string, on func(), message func(string)) error {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s, err := c.router.find(ctx, channel)
		if err != nil {
			return err
		}
		begin := time.Now()
		err = s.hub.listen(ctx, &subscription{channel: channel, shard: c.router.cluster != nil, on: on, message: message})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		moved := new(movedError)
		switch {
		case errors.As(err, &moved) && c.router.cluster != nil:
			_, err = c.router.moved(s, channel, moved.addr)
		case errors.Is(err, errMoved):
			err = nil
		case !isReply(err) && !errors.Is(err, errClosed):
			c.router.failed(s, channel)
			err = nil
		}
		if err != nil {
			return err
		}
		if time.Since(begin) > mostPause {
			pause = leastPause // the subscription had worked
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// Servers returns the only server, or the primaries of a Cluster.
func (c *conn) Servers(ctx context.Context) ([]rediscore.Server, error) {
	primaries, err := c.router.primaries(ctx)
	servers := make([]rediscore.Server, len(primaries))
	for i, s := range primaries {
		servers[i] = rediscore.Server{Addr: s.opts.Addr, Do: func(ctx context.Context, args ...string) (any, error) {
			words := make([]any, len(args))
			for i, arg := range args {
				words[i] = arg
			}
			cmd := redis.NewCmd(ctx, words...)
			if err := s.do(ctx, &request{cmds: []redis.Cmder{cmd}}); err != nil {
				return nil, err
			}
			reply := replyOf(cmd)
			return reply.Value, reply.Err
		}}
	}
	return servers, err
}
