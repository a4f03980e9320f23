package wire

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// Word sends a four-letter command, such as "srvr", to a server over a connection of its own, and
// returns the reply. Servers reply only to commands of their 4lw.commands.whitelist.
func (c *Conn) Word(ctx context.Context, server, word string) (string, error) {
	conn, err := c.dial(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	reply, err := io.ReadAll(io.LimitReader(conn, maxFrame))
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(reply), err
}

// Alone starts a client for some of the servers, with the same user and a session of its own.
func (c *Conn) Alone(servers ...string) *Conn {
	opts := c.opts
	opts.Servers = servers
	opts.Session, opts.Event = func(int64, time.Duration) {}, func(string, bool) {}
	return Dial(opts)
}

// Servers returns the addresses of the servers, and the requested session timeout.
func (c *Conn) Servers() (addrs []string, timeout time.Duration) {
	return slices.Sorted(slices.Values(c.opts.Servers)), c.opts.Timeout
}
