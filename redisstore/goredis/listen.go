package goredis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// A subscription is tested with a PING every pingEvery, and is closed if nothing was received
	// for maxSilence.
	pingEvery  = time.Second
	maxSilence = 2500 * time.Millisecond

	// Bounds of the pause before a subscription that was lost or moved is renewed.
	leastPause = 10 * time.Millisecond
	mostPause  = time.Second
)

// errMoved ends a subscription whose channel now belongs to another server.
var errMoved = errors.New("the channel has moved to another server")

// A movedError is an errMoved that names the other server.
type movedError struct{ addr string }

func (e *movedError) Error() string        { return errMoved.Error() }
func (e *movedError) Is(target error) bool { return target == errMoved }

// A hub is the one connection on which a store listens to a server, for any number of channels. It
// is open while there are subscriptions.
type hub struct {
	server *server

	mu      sync.Mutex
	closed  bool
	wanted  map[string]*subscription // by channel
	changed chan struct{}            // tells the goroutine that wanted has changed
	link    *link                    // nil if no goroutine runs
	wg      sync.WaitGroup
}

// A subscription listens to a channel.
type subscription struct {
	channel string
	shard   bool
	on      func()
	message func(string)
	ended   chan error // gets one error, unless the subscription is removed
}

// listen listens to a channel until ctx ends or the subscription fails.
func (h *hub) listen(ctx context.Context, sub *subscription) error {
	sub.ended = make(chan error, 1)
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return errClosed
	}
	if h.link == nil {
		h.start()
	}
	h.wanted[sub.channel] = sub
	h.signal()
	h.mu.Unlock()
	select {
	case err := <-sub.ended:
		return err
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted[sub.channel] == sub {
		delete(h.wanted, sub.channel)
		if len(h.wanted) == 0 {
			h.stop()
		}
		h.signal()
	}
	return ctx.Err()
}

// start starts the goroutine of a new connection. The caller holds the mutex.
func (h *hub) start() {
	h.server.mu.Lock()
	h.link = h.server.newLink(true)
	h.server.mu.Unlock()
	h.wanted, h.changed = make(map[string]*subscription), make(chan struct{}, 1)
	c := &channels{hub: h, link: h.link, changed: h.changed, wanted: h.wanted}
	h.wg.Go(c.run)
}

// stop ends the connection, but not the subscriptions. The caller holds the mutex.
func (h *hub) stop() {
	h.link.kill()
	h.link = nil
}

// signal tells the goroutine that wanted has changed. The caller holds the mutex.
func (h *hub) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// restart ends the connection, so that all subscriptions are renewed on another one.
func (h *hub) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link != nil {
		h.link.kill()
	}
}

// end ends the subscriptions whose channels have moved to another server.
func (h *hub) end(moved func(channel string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sub := range h.wanted {
		if moved(sub.channel) {
			h.fail(sub, errMoved)
		}
	}
}

// fail ends a subscription with an error. The caller holds the mutex.
func (h *hub) fail(sub *subscription, err error) {
	delete(h.wanted, sub.channel)
	sub.ended <- err
	if len(h.wanted) == 0 && h.link != nil {
		h.stop()
	}
	h.signal()
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	if h.link != nil {
		h.link.kill()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// channels holds the subscriptions of one connection.
type channels struct {
	hub     *hub
	link    *link
	changed chan struct{}
	wanted  map[string]*subscription // guarded by the hub's mutex
	pubsub  *redis.PubSub
	has     map[string]*subscription // the channels that were subscribed to
	silence *time.Timer

	mu   sync.Mutex
	sent []sent // commands without a reply, in order, because an error does not name its command
}

type sent struct {
	verb, channel string
}

// run subscribes and unsubscribes until the connection fails or no subscription is left.
func (c *channels) run() {
	defer c.link.close()
	c.has = make(map[string]*subscription)
	c.pubsub = c.link.client.Subscribe(c.link.ctx)
	defer c.pubsub.Close()
	c.silence = time.AfterFunc(maxSilence, c.link.kill)
	defer c.silence.Stop()
	failed := make(chan error, 1)
	reads := false
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-c.changed:
			err = c.update()
			if err == nil && !reads { // now there is a connection
				reads = true
				c.hub.wg.Go(func() { failed <- c.read() })
			}
		case <-ping.C:
			err = c.write("ping", "", func() error { return c.pubsub.Ping(c.link.ctx) })
		case err = <-failed:
			reads = false
		case <-c.link.ctx.Done():
			err = errLinkClosed
		}
		if err == nil {
			continue
		}
		c.link.kill()
		c.hub.mu.Lock()
		if c.hub.link == c.link {
			c.hub.link = nil
		}
		for _, sub := range c.wanted {
			c.hub.fail(sub, err)
		}
		c.hub.mu.Unlock()
		if reads {
			<-failed
		}
		return
	}
}

// update subscribes to the wanted channels and unsubscribes from the others. Each channel has a
// command of its own, because channels of different slots of a Cluster must not share one.
func (c *channels) update() error {
	c.hub.mu.Lock()
	var add, remove []*subscription
	for channel, sub := range c.wanted {
		if c.has[channel] != sub {
			add = append(add, sub)
		}
	}
	for channel, sub := range c.has {
		if c.wanted[channel] == nil {
			remove = append(remove, sub)
		}
	}
	c.hub.mu.Unlock()
	for _, sub := range add {
		verb, subscribe := "subscribe", c.pubsub.Subscribe
		if sub.shard {
			verb, subscribe = "ssubscribe", c.pubsub.SSubscribe
		}
		c.has[sub.channel] = sub
		if err := c.write(verb, sub.channel, func() error { return subscribe(c.link.ctx, sub.channel) }); err != nil {
			return err
		}
	}
	for _, sub := range remove {
		verb, unsubscribe := "unsubscribe", c.pubsub.Unsubscribe
		if sub.shard {
			verb, unsubscribe = "sunsubscribe", c.pubsub.SUnsubscribe
		}
		delete(c.has, sub.channel)
		if err := c.write(verb, sub.channel, func() error { return unsubscribe(c.link.ctx, sub.channel) }); err != nil {
			return err
		}
	}
	return nil
}

// write sends a command.
func (c *channels) write(verb, channel string, send func() error) error {
	c.mu.Lock()
	c.sent = append(c.sent, sent{verb, channel})
	c.mu.Unlock()
	return send()
}

// replied removes the oldest command without a reply, if it is this one. An empty verb matches any
// command.
func (c *channels) replied(verb, channel string) (oldest sent, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sent) == 0 || verb != "" && c.sent[0] != (sent{verb, channel}) {
		return sent{}, false
	}
	oldest = c.sent[0]
	c.sent = c.sent[1:]
	return oldest, true
}

// read reads messages and replies until the connection fails.
func (c *channels) read() error {
	for {
		received, err := c.pubsub.Receive(c.link.ctx)
		if err != nil && !isReply(err) {
			return err
		}
		c.silence.Reset(maxSilence)
		switch m := received.(type) {
		case *redis.Message:
			if sub := c.of(m.Channel); sub != nil {
				sub.message(m.Payload)
			}
		case *redis.Pong:
			c.replied("ping", "")
		case *redis.Subscription:
			_, asked := c.replied(m.Kind, m.Channel)
			sub := c.of(m.Channel)
			switch {
			case sub == nil:
			case strings.HasPrefix(m.Kind, "s") && !strings.HasPrefix(m.Kind, "sun"):
				sub.on()
			case !asked: // the slot has moved away
				c.fail(sub, errMoved)
			}
		default:
			oldest, _ := c.replied("", "")
			subscribes := oldest.verb == "subscribe" || oldest.verb == "ssubscribe"
			if sub := c.of(oldest.channel); sub != nil && subscribes {
				if addr, ok := movedTo(err); ok {
					err = &movedError{addr}
				}
				c.fail(sub, err)
			}
		}
	}
}

// of returns the subscription of a channel, or nil if there is none.
func (c *channels) of(channel string) *subscription {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return c.wanted[channel]
}

func (c *channels) fail(sub *subscription, err error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.wanted[sub.channel] == sub {
		c.hub.fail(sub, err)
	}
}
