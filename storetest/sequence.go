package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest/internal/model"
)

// Op is what a [Step] does.
type Op uint8

// The calls of a store, and two ways to let time pass.
const (
	Acquire Op = iota + 1
	Wait       // waits if the client must be woken; otherwise its context ends soon
	Watch      // calls Wait in the background until the next step of the client
	Renew
	Release
	Leave
	Break
	List
	Expire // until short TTLs are over, and clients that do not ask are no longer queued
	Pause  // a third of that time
)

var opNames = [...]string{"", "Acquire", "Wait", "Watch", "Renew", "Release", "Leave", "Break", "List", "Expire", "Pause"}

// A Step is one call in a sequence that [Compare] makes and [Replay] repeats. A client has one identity at a
// time, and a new one when it acquires after the old one was released, left or broken.
type Step struct {
	Op     Op
	Client int
	Conn   int  // the connection that it uses, 0 or 1
	Name   int  // the number of the name
	Old    bool // with the identity that the client had before
	All    bool // renews the grants of all clients in one call; lists all names

	Mode   store.Mode // of an Acquire; of a Renew that changes the mode
	Weight int        // of permits
	Limit  int        // of permits
	Tokens int
	Floor  bool // with a floor above all tokens of the name
	Queue  bool
	Short  bool        // with a TTL, or a time to keep a name closed, that ends at Expire
	Keep   store.State // of a Release
}

// String returns a step as Go source.
func (s Step) String() string {
	var fields []string
	for i, v := 0, reflect.ValueOf(s); i < v.NumField(); i++ {
		value := fmt.Sprint(v.Field(i))
		switch x := v.Field(i).Interface().(type) {
		case Op:
			value = "storetest." + opNames[x]
		case store.Mode, store.State:
			value = "store." + strings.ToUpper(value[:1]) + value[1:]
		}
		if !v.Field(i).IsZero() {
			fields = append(fields, v.Type().Field(i).Name+": "+value)
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

type sequence struct {
	compared
	base    string
	start   time.Time
	model   *model.Model
	clients map[int]*client
	kept    []client // that left kept records
}

// A client makes the calls of a sequence under one identity after the other.
type client struct {
	req     store.Request // its newest request, with its identity
	old     store.ID
	asked   time.Time // when it made its newest request
	conn    int       // of its requests and calls of Wait
	ended   bool      // the identity was released, left or broken
	woken   bool      // a Wait that had to return did so, since the newest request
	cancel  context.CancelFunc
	waiting chan error // the result of a Wait in the background
}

func newSequence(c compared) *sequence {
	return &sequence{
		compared: c, base: "compare-" + strings.ToLower(rand.Text()[:12]), start: time.Now(),
		model: model.New(c.caps, c.Slack), clients: map[int]*client{},
	}
}

// name returns one of three names that are easily confused.
func (q *sequence) name(n int) string { return q.base + [...]string{"/n", "/N", "/n "}[n] }

func (q *sequence) client(n int) *client {
	if q.clients[n] == nil {
		q.clients[n] = &client{req: store.Request{Name: q.name(0), ID: store.NewID(), Mode: store.Exclusive, Weight: 1}, old: store.NewID()}
	}
	return q.clients[n]
}

// times returns the function that ends the measurement of a call.
func (q *sequence) times() func() model.Span {
	from := time.Since(q.start)
	return func() model.Span { return model.Span{From: from, To: time.Since(q.start)} }
}

func (q *sequence) ttl(short bool) time.Duration {
	if short {
		return q.TTL
	}
	return q.long
}

// do makes one step, and returns how the answer breaks the contract.
func (q *sequence) do(st Step) error {
	switch st.Op {
	case Pause:
		time.Sleep(max(q.TTL, q.caps.Heartbeat) / 3)
		return nil
	case Expire:
		time.Sleep(max(q.TTL, q.caps.Heartbeat) + q.Slack + q.TTL/100)
		return nil
	case List:
		return q.list(st)
	}
	c := q.client(st.Client)
	if err := q.unwatch(c); err != nil {
		return err
	}
	if !st.Old && c.req.Owner != "" {
		st.Conn = q.allowed(c, st.Conn)
	}
	conn, name, id := q.conns[st.Conn], q.name(st.Name), c.req.ID
	if st.Old {
		id = c.old
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	end := q.times()
	switch st.Op {
	case Acquire:
		return q.acquire(ctx, st, c)
	case Watch:
		q.watch(c)
		return nil
	case Wait:
		q.watch(c)
		return q.unwatch(c)
	case Renew:
		return q.renew(ctx, st, c, name, id)
	case Release:
		var keep store.Keep
		if st.Keep != 0 {
			keep = store.Keep{State: st.Keep, For: q.ttl(st.Short)}
		}
		err := conn.Release(ctx, name, id, keep)
		c.end(id, err)
		if st.Keep != 0 && err == nil {
			q.kept = append(q.kept, *c)
		}
		return q.model.Release(end(), name, id, keep, err)
	case Leave:
		err := conn.Leave(ctx, name, id)
		c.end(id, err)
		return q.model.Leave(end(), name, id, err)
	case Break:
		err := conn.Break(ctx, name, id)
		c.end(id, err)
		return q.model.Break(end(), name, id, err)
	}
	return fmt.Errorf("no such step")
}

// allowed returns the connection that a client uses if the step says conn. A grant may move to the second
// connection, but not back to the first, which may remember grants that it had. A quorum remembers votes too.
func (q *sequence) allowed(c *client, conn int) int {
	if !q.caps.Features.Has(store.FeatureQueue) {
		return c.conn
	}
	return max(c.conn, conn)
}

// end notes that an identity must not be used for another request.
func (c *client) end(id store.ID, err error) { c.ended = c.ended || err == nil && id == c.req.ID }

func (q *sequence) acquire(ctx context.Context, st Step, c *client) error {
	if c.ended || c.req.Owner == "" {
		if c.ended {
			c.old, c.req.ID, c.ended = c.req.ID, store.NewID(), false
		}
		c.req.Name, c.req.Mode, c.req.Weight, c.req.Limit = q.name(st.Name), st.Mode, max(1, st.Weight), st.Limit
		c.conn = st.Conn
		c.req.Owner, c.req.Meta = "owner "+c.req.ID.String()[:4], "meta "+c.req.ID.String()[:4]
	}
	req := &c.req
	req.TTL, req.Tokens, req.Queue, req.Floor = q.ttl(st.Short), max(1, st.Tokens), st.Queue, 0
	if st.Floor {
		req.Floor = q.model.Highest(req.Name) + 1000
	}
	c.woken, c.asked = false, time.Now()
	end := q.times()
	a, err := q.conns[c.conn].Acquire(ctx, *req)
	if wrong := q.model.Acquire(end(), *req, a, err); wrong != nil || err == nil {
		return wrong
	}
	return q.do(Step{Op: Leave, Client: st.Client, Conn: st.Conn, Name: st.Name}) // an invalid request may leave the identity queued
}

func (q *sequence) mustWake(c *client) bool {
	return q.model.MustWake(q.times()(), c.req.Name, c.req.ID)
}

// watch calls Wait in the background.
func (q *sequence) watch(c *client) {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.waiting = cancel, make(chan error, 1)
	conn, name, id, result := q.conns[c.conn], c.req.Name, c.req.ID, c.waiting
	go func() { result <- conn.Wait(ctx, name, id) }()
}

// unwatch ends a Wait of a client. If the client must be woken, it expects that Wait returns.
func (q *sequence) unwatch(c *client) error {
	if c.waiting == nil {
		return nil
	}
	defer func() {
		c.cancel()
		c.waiting = nil
	}()
	limit := q.TTL / 100
	must := q.mustWake(c)
	if must && !q.fake {
		limit = wakeLimit
		// A store may also end a Wait because the client has lost its place, which is no wake-up.
		if left := q.caps.Heartbeat*7/8 - time.Since(c.asked); left > slowWake {
			limit = min(limit, left)
		}
	}
	select {
	case err := <-c.waiting:
		c.woken = must
		if q.exact && err == nil && !q.model.MayWake(q.times()(), c.req.Name, c.req.ID) {
			return fmt.Errorf("a client whose turn has not come is woken")
		}
		return wrongWait(err, nil)
	case <-time.After(limit):
	}
	if must {
		return fmt.Errorf("a client whose turn has come is not woken: Wait has not returned for %v", limit)
	}
	c.cancel()
	select {
	case err := <-c.waiting:
		return wrongWait(err, context.Canceled)
	case <-time.After(wakeLimit):
		return fmt.Errorf("a call of Wait does not return although its context has ended")
	}
}

func wrongWait(err, cause error) error {
	if err == nil || cause != nil && errors.Is(err, cause) {
		return nil
	}
	return fmt.Errorf("a call of Wait: %w", err)
}

func (q *sequence) renew(ctx context.Context, st Step, c *client, name string, id store.ID) error {
	first := store.Renewal{Name: name, ID: id, TTL: q.ttl(st.Short), Mode: cmp.Or(st.Mode, c.req.Mode), Tokens: st.Tokens}
	if st.Floor {
		first.Floor = q.model.Highest(name) + 1000
	}
	renewals, clients := []store.Renewal{first}, []*client{c}
	for n := 0; st.All && n < len(q.clients)*2; n++ {
		if other := q.clients[n]; other != nil && other != c && q.allowed(other, st.Conn) == st.Conn {
			renewals = append(renewals, store.Renewal{Name: other.req.Name, ID: other.req.ID, TTL: q.ttl(st.Short), Mode: other.req.Mode})
			clients = append(clients, other)
		}
	}
	for _, r := range renewals {
		if q.model.MayBePushed(q.times()(), r.Name, r.ID) {
			return nil // no client renews a grant that it does not know of
		}
	}
	end := q.times()
	out, err := q.conns[st.Conn].Renew(ctx, renewals)
	at := end()
	if err != nil {
		out = slices.Repeat([]store.Renewed{{Err: err}}, len(renewals))
	}
	if len(out) != len(renewals) {
		return fmt.Errorf("%d outcomes for %d renewals", len(out), len(renewals))
	}
	for i, r := range renewals {
		one := out[i]
		if one.Status == store.Extended && one.Err == nil {
			clients[i].req.Mode = r.Mode
			if r.ID == clients[i].req.ID {
				clients[i].conn = st.Conn
			}
		}
		if wrong := q.model.Renew(at, r, one); wrong != nil {
			return fmt.Errorf("renewal %d: %w", i+1, wrong)
		}
	}
	return nil
}

// list lists one name, or all names of the sequence, two at a time.
func (q *sequence) list(st Step) error {
	query, names := store.Query{Name: q.name(st.Name)}, []int{st.Name}
	if st.All {
		query, names = store.Query{Prefix: q.base, Limit: 2}, []int{0, 1, 2}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	locks := map[string]*store.Lock{}
	end := q.times()
	for first := true; first || query.Cursor != ""; first = false {
		page, err := q.conns[st.Conn].List(ctx, query)
		if err != nil {
			return fmt.Errorf("error %w", err)
		}
		for _, l := range page.Locks {
			if locks[l.Name] != nil && q.caps.Features.Has(store.FeatureQueue) { // a quorum merges the lists of its servers
				return fmt.Errorf("%q is listed twice", l.Name)
			}
			locks[l.Name] = &l
		}
		query.Cursor = page.Next
	}
	at := end()
	for _, n := range names {
		if err := q.model.List(at, q.name(n), locks[q.name(n)]); err != nil {
			return fmt.Errorf("name %d: %w", n, err)
		}
		delete(locks, q.name(n))
	}
	for name := range locks {
		return fmt.Errorf("%q is listed, which the query does not match", name)
	}
	return nil
}

// cleanUp ends everything that the sequence has left on the server.
func (q *sequence) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, c := range q.clients {
		if c.waiting != nil {
			c.cancel()
		}
		if !c.ended && c.req.Owner != "" {
			q.conns[0].Leave(ctx, c.req.Name, c.req.ID)
		}
	}
	for _, c := range q.kept {
		if q.caps.Features.Has(store.FeatureList) {
			q.conns[0].Break(ctx, c.req.Name, c.req.ID)
		}
	}
}
