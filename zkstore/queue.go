package zkstore

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A queue is the nodes of a name in order of arrival. The holders are always its beginning: no
// request is granted before those in front of it are.
type queue struct {
	parent string
	nodes  []node
}

// look reads the queue of a name after the server has caught up with its leader: one server may
// be behind the others. It is nil if the name is not in use.
func (s *Store) look(ctx context.Context, name string) (*queue, error) {
	parent, _ := s.place(name)
	return s.lookAt(ctx, parent, &wire.Call{Op: wire.Sync(parent)})
}

// lookAt reads the queue of a name behind other calls, whose errors are for the caller to see,
// and removes kept records whose time is over. Without a Sync it is for callers that have just
// written, or were told by this server of a change: they need nothing newer than that.
func (s *Store) lookAt(ctx context.Context, parent string, before ...*wire.Call) (*queue, error) {
	list := &wire.Call{Op: wire.Children(parent, false)}
	if err := s.wire.Do(ctx, append(before, list)...); err != nil && err == ctx.Err() {
		return nil, err
	}
	if list.Err != nil {
		return nil, ignoreNoNode(list.Err)
	}
	q := &queue{parent: parent, nodes: make([]node, 0, len(list.Children))}
	for _, name := range list.Children {
		n, ok := parseNode(name)
		if ok && n.kept {
			var err error
			if ok, err = s.stillKept(ctx, q, &n); err != nil {
				return nil, err
			}
		}
		if ok {
			q.nodes = append(q.nodes, n)
		}
	}
	slices.SortFunc(q.nodes, arrival)
	return q, nil
}

// stillKept reads what a release kept, and removes it if its time is over by the clock of
// the servers, which wrote when it began.
func (s *Store) stillKept(ctx context.Context, q *queue, n *node) (bool, error) {
	recs, err := s.read(ctx, q, *n)
	if err != nil || recs[0].record == nil {
		return false, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return false, err
	}
	n.rec = recs[0].record
	n.id, n.weight, n.limit = n.rec.id, n.rec.weight, n.rec.limit
	if n.rec.ttl -= time.Duration(now-recs[0].stat.Mtime) * time.Millisecond; n.rec.ttl > 0 {
		return true, nil
	}
	return false, ignoreNoNode(s.wire.Do(ctx, &wire.Call{Op: wire.Delete(q.parent+"/"+n.name, recs[0].stat.Version)}))
}

// A standing is a record with the Stat of its node. The record is nil if the node is gone.
type standing struct {
	*record
	stat wire.Stat
}

// read reads the records of nodes, all at once.
func (s *Store) read(ctx context.Context, q *queue, nodes ...node) ([]standing, error) {
	calls, all := make([]*wire.Call, len(nodes)), make([]standing, len(nodes))
	for i := range nodes {
		calls[i] = &wire.Call{Op: wire.Get(q.parent+"/"+nodes[i].name, false)}
	}
	if err := s.wire.Do(ctx, calls...); err != nil && err != wire.ErrNoNode {
		return nil, err
	}
	for i, call := range calls {
		if call.Err != nil {
			if ignoreNoNode(call.Err) != nil {
				return nil, call.Err
			}
			continue
		}
		rec, err := parseRecord(call.Data)
		if err != nil {
			return nil, err
		}
		if rec.since == 0 {
			rec.since = call.Stat.Mtime
		}
		if rec.granted && rec.token == 0 {
			t, err := s.table(ctx)
			if err != nil {
				return nil, err
			}
			if token, ok := t.at(call.Stat.Mzxid); ok && token > rec.floor {
				rec.token = token
			}
		}
		all[i] = standing{rec, call.Stat}
	}
	return all, nil
}

// find returns the place of an identity, or -1.
func (q *queue) find(id store.ID) int {
	return slices.IndexFunc(q.nodes, func(n node) bool { return n.id == id })
}

// stand makes an attempt at a name that is in use, from a place in its queue. It is not ok if
// it is to be tried anew.
func (s *Store) stand(ctx context.Context, req *store.Request) (answer store.Answer, ok bool, err error) {
	k := key{req.Name, req.ID}
	parent, _ := s.place(req.Name)
	c := s.claimOf(k)
	var closes *watch
	var before []*wire.Call
	if req.Queue { // watch and join before the look, so that it misses nothing
		closes = s.watch(parent, false)
		if c == nil {
			before = append(before, s.join(parent, req))
		}
	}
	if c != nil && !s.isTold(c) {
		before = append(before, &wire.Call{Op: wire.Sync(parent)})
	}
	q, err := s.lookAt(ctx, parent, before...)
	if err == nil && closes != nil {
		err = closes.err(ctx)
	}
	if err == nil && len(before) > 0 {
		err = before[0].Err
	}
	if err != nil || q == nil {
		return answer, false, ignoreNoNode(err)
	}
	i := q.find(req.ID)
	c = s.claimOf(k)
	ended := i >= 0 && q.nodes[i].kept && q.nodes[i].rec.state != store.Held
	if c != nil && (i < 0 || ended || c.node != q.nodes[i].name) {
		// It was broken or has expired. Or the identity had a place of which this handle did
		// not know, such as one whose reply was lost: then that counts.
		if err := s.undo(ctx, c); err != nil || i < 0 {
			return answer, false, err
		}
		c = nil
	}
	switch {
	case ended: // a grant must not come back to life beside its own record
		answer.Refusal, err = s.refuse(ctx, q, -1, req)
		return answer, err == nil && answer.Refusal != nil, err
	case i < 0:
		return s.try(ctx, q, req)
	case c == nil:
		recs, err := s.read(ctx, q, q.nodes[i])
		if err != nil || recs[0].record == nil {
			return answer, false, err
		}
		if c, err = s.takeOver(ctx, req.Name, q, i, recs[0]); c == nil || err != nil {
			return answer, false, err
		}
	}
	rec, _ := s.state(c)
	if err := store.SameClaim(req, rec.mode, rec.weight, rec.limit); err != nil {
		return answer, false, err
	}
	s.mu.Lock()
	c.crowd = len(q.nodes) > 1
	if closes != nil {
		c.closes = closes.fired
	}
	s.mu.Unlock()
	if rec.granted {
		rec.ttl = req.TTL
		return s.grant(ctx, c, rec, q, i)
	}
	return s.judge(ctx, c, q, i, req)
}

// join puts a request at the end of the queue. If the identity has a place already, of which
// this handle does not know, the look that follows finds both.
func (s *Store) join(parent string, req *store.Request) *wire.Call {
	c := &claim{key: key{req.Name, req.ID}, parent: parent, rec: recordOf(req)}
	op := wire.Create(parent+"/"+requestNode(req), c.rec.encode(), s.acl, wire.EphemeralSequential)
	return &wire.Call{Op: op, Then: func(call *wire.Call) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch call.Err {
		case nil:
			c.node = call.Path[len(parent)+1:]
			s.adopt(c, &call.Stat)
		case wire.ErrUnknown:
			s.suspect(c.key, s.heartbeat)
		}
	}}
}

// try is for a request that does not wait: it gets a place only if it can be granted there.
func (s *Store) try(ctx context.Context, q *queue, req *store.Request) (answer store.Answer, ok bool, err error) {
	turn, gone, err := s.isTurn(ctx, q, len(q.nodes), req)
	switch {
	case err != nil || gone || req.Queue:
		return answer, false, err
	case turn:
		return answer, false, ignoreNoNode(s.wire.Do(ctx, s.join(q.parent, req))) // and look again
	}
	answer.Refusal, err = s.refuse(ctx, q, -1, req)
	return answer, err == nil && answer.Refusal != nil, err
}

// judge grants the request at place i if it is its turn, and refuses it otherwise.
func (s *Store) judge(ctx context.Context, c *claim, q *queue, i int, req *store.Request) (answer store.Answer, ok bool, err error) {
	var front *watch
	if i > 0 && req.Queue {
		front = s.watch(q.parent+"/"+q.nodes[i-1].name, req.Mode == store.Exclusive)
	}
	turn, gone, err := s.isTurn(ctx, q, i, req)
	switch {
	case errors.Is(err, store.ErrInvalid):
		return answer, false, errors.Join(err, s.undo(ctx, c))
	case gone || err != nil:
		return answer, false, err
	case turn:
		return s.grant(ctx, c, recordOf(req), q, i)
	}
	answer.Refusal, err = s.refuse(ctx, q, i, req)
	if err == nil && front != nil {
		err = front.err(ctx)
	}
	if err != nil || answer.Refusal == nil { // the queue has moved on
		return answer, false, ignoreNoNode(err)
	}
	if !req.Queue {
		err = s.undo(ctx, c)
		return answer, err == nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.turn = front.fired; s.claims[c.key] == c {
		s.arm(c, s.heartbeat)
	}
	return answer, true, nil
}

// undo removes the node of a request that is not to wait.
func (s *Store) undo(ctx context.Context, c *claim) error { return ignoreNoNode(s.remove(ctx, c)) }

// isTurn reports whether a request can be granted at place i: it is the first, or it may hold
// the name together with those in front of it. That needs the data of the last of them that is
// granted. It is gone if one left meanwhile: a kept record may have taken its place. The error is an ErrInvalid if the request can never
// go together with another one.
func (s *Store) isTurn(ctx context.Context, q *queue, i int, req *store.Request) (turn, gone bool, err error) {
	weight, alike := 0, true
	for j, n := range q.nodes {
		if j < i {
			weight, alike = weight+n.weight, alike && n.mode == req.Mode
		}
		if err := store.Mixes(req.Name, req.Mode, req.Limit, n.mode, n.limit); err != nil && n.id != req.ID {
			return false, false, err
		}
	}
	if i == 0 || req.Mode == store.Exclusive {
		return i == 0, false, nil
	}
	var u store.Usage
	for j := i - 1; j >= 0; j-- {
		recs, err := s.read(ctx, q, q.nodes[j])
		if err != nil || recs[0].record == nil {
			return false, err == nil, err
		}
		rec := recs[0].record
		if !rec.granted && q.nodes[j].try {
			continue // it will be granted, or leave
		}
		if err := store.Mixes(req.Name, req.Mode, req.Limit, rec.mode, rec.limit); err != nil || !rec.granted {
			return false, false, err
		}
		u.Add(rec.mode, weight, rec.limit) // all in front hold it in this mode
		return u.Admits(req.Mode, req.Weight, req.Limit), false, nil
	}
	u.Add(req.Mode, weight, req.Limit) // attempts of which none is granted yet
	return alike && u.Admits(req.Mode, req.Weight, req.Limit), false, nil
}

// holders returns how many hold the name, and the records of at most so many of them.
func (s *Store) holders(ctx context.Context, q *queue, most int) (n int, list []standing, err error) {
	for most = min(most, len(q.nodes)); n < most; {
		end := most
		if n == 0 {
			end = 1 // it may be the only one
		}
		recs, err := s.read(ctx, q, q.nodes[n:end]...)
		if err != nil {
			return 0, nil, err
		}
		for _, r := range recs {
			if r.record == nil || !r.granted {
				return n, list, nil
			}
			list = append(list, r)
			if n++; r.mode == store.Exclusive {
				return n, list, nil
			}
		}
	}
	// The rest is found by bisection, since the holders are the beginning of the queue.
	more := sort.Search(len(q.nodes)-n, func(i int) bool {
		recs, failed := s.read(ctx, q, q.nodes[n+i])
		if failed != nil {
			err = failed
		}
		return failed != nil || recs[0].record == nil || !recs[0].granted
	})
	return n + more, list, err
}

// waiters counts who waits behind the holders, other than i.
func (q *queue) waiters(holders, i int) (n int) {
	for j := holders; j < len(q.nodes); j++ {
		if j != i && !q.nodes[j].try {
			n++
		}
	}
	return n
}

// refuse says why the request at place i, or at none, is not granted. It is nil if nothing is
// in the way any more.
func (s *Store) refuse(ctx context.Context, q *queue, i int, req *store.Request) (*store.Refusal, error) {
	n, list, err := s.holders(ctx, q, store.MaxHolders)
	if err != nil {
		return nil, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	r := &store.Refusal{Waiters: q.waiters(n, i), Again: s.heartbeat / 3}
	var u store.Usage
	for j, held := range list {
		h := held.holder(now)
		r.Holders = append(r.Holders, h)
		u.Add(h.Mode, h.Weight, req.Limit)
		if q.nodes[j].kept {
			r.Again = max(time.Millisecond, min(r.Again, h.Left))
		}
	}
	if n == len(list) && u.Admits(req.Mode, req.Weight, req.Limit) {
		r.Holders = nil // only earlier waiters are in the way
	}
	if i >= 0 && req.Queue {
		if r.Place = 1 + q.waiters(n, i) - q.waiters(i+1, -1); i < n { // granted since
			return nil, nil
		}
	}
	return r, nil
}

// holder describes a holder.
func (r standing) holder(now int64) store.Holder {
	return store.Holder{
		ID: r.id, Owner: r.owner, Meta: r.meta, Mode: r.mode, Weight: r.weight, Token: r.token, State: r.state,
		Age:  time.Duration(max(0, now-r.since)) * time.Millisecond,
		Left: max(0, time.Duration(r.stat.Mtime-now)*time.Millisecond+r.ttl),
	}
}
