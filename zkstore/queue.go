package zkstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A queue has the nodes of a name in order of arrival. The holders are always at its beginning, because no
// request is granted before the requests in front of it, except for single attempts, which do not wait.
type queue struct {
	parent  string
	nodes   []node
	unknown error // there is a node of a later format: the name must not be granted
}

// look sends calls and then reads the queue of a name. It removes kept records whose time is over, and the
// parent of a name that is not in use.
//
// One server may be behind the others, so one of the calls is a Sync, unless the caller has just
// written or received an event from this server, and needs nothing newer than that.
func (s *Store) look(ctx context.Context, parent string, before ...*wire.Call) (*queue, error) {
	list, q := &wire.Call{Op: wire.Children(parent, false)}, &queue{parent: parent}
	if err := s.wire.Do(ctx, append(before, list)...); err != nil {
		return q, ignoreNoNode(err)
	}
	for _, name := range list.Children {
		n, ok := parseNode(name)
		var err error
		switch {
		case !ok:
			err = unknownFormat(parent + "/" + name)
		case n.kept:
			ok, err = s.stillKept(ctx, q, &n)
		}
		switch {
		case errors.Is(err, store.ErrInvalid):
			q.unknown = err
		case err != nil:
			return q, err
		case ok:
			q.nodes = append(q.nodes, n)
		}
	}
	if len(q.nodes) == 0 {
		s.wire.Send(&wire.Call{Op: wire.Delete(parent, wire.AnyVersion)}) // refused if it is in use
	}
	slices.SortFunc(q.nodes, arrival)
	return q, nil
}

// stillKept reads a kept record, and removes it if its time is over by the clock of the servers.
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
	n.id, n.weight, n.limit = n.rec.ID, n.rec.Weight, n.rec.Limit
	if n.rec.TTL -= time.Duration(now-recs[0].stat.Mtime) * time.Millisecond; n.rec.TTL > 0 {
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
	if err := s.wire.Do(ctx, calls...); ignoreNoNode(err) != nil {
		return nil, err
	}
	for i, call := range calls {
		if call.Err == wire.ErrNoNode {
			continue
		}
		if call.Err != nil {
			return nil, call.Err
		}
		rec, err := parseRecord(q.parent+"/"+nodes[i].name, call.Data)
		if err != nil {
			return nil, err
		}
		rec.since = cmp.Or(rec.since, call.Stat.Mtime)
		if rec.granted && rec.token == 0 {
			t, err := s.table(ctx)
			if err != nil {
				return nil, err
			}
			if token, ok := t.at(call.Stat.Mzxid); ok && token > rec.Floor {
				rec.token = token
			}
		}
		all[i] = standing{rec, call.Stat}
	}
	return all, nil
}

// find returns the place of an identity, or -1 if it has none.
func (q *queue) find(id store.ID) int {
	return slices.IndexFunc(q.nodes, func(n node) bool { return n.id == id })
}

// claim returns a claim to the node at place i.
func (q *queue) claim(k wake.Key, i int) *claim {
	return &claim{Key: k, parent: q.parent, node: q.nodes[i].name, crowd: len(q.nodes) > 1, since: time.Now()}
}

// takeQueued makes an attempt to take a name that is in use, from a place in its queue.
func (s *Store) takeQueued(ctx context.Context, req *store.Request) (answer store.Answer, err error) {
	k := wake.Key{Name: req.Name, ID: req.ID}
	parent, _ := s.place(req.Name)
	told, next := false, false // told: its server reported a change in front of it
	s.mu.Lock()
	c := s.claims[k]
	if c != nil {
		if !c.rec.granted {
			s.arm(c, s.heartbeat) // now, since the servers may take long to reply
		}
		select {
		case <-c.turn:
			told = true
		default:
		}
		next = c.next
	}
	s.mu.Unlock()
	var closes, room <-chan struct{}
	var before []*wire.Call
	if req.Queue { // watch and join before reading the queue, so that no change is missed
		closes = s.watch(parent, false)
		if next {
			room = s.watch(parent, true)
		}
	}
	switch {
	case c != nil && !told:
		before = append(before, &wire.Call{Op: wire.Sync(parent)})
	case c == nil && req.Queue:
		before = append(before, s.join(parent, req))
	}
	q, err := s.look(ctx, parent, before...)
	if err = cmp.Or(err, q.unknown); err != nil {
		return answer, changed(s.undoInvalid(ctx, s.claimOf(k), err))
	}
	i := q.find(req.ID)
	c = s.claimOf(k)
	ended := i >= 0 && q.nodes[i].kept && q.nodes[i].rec.state != store.Held
	if c != nil && (i < 0 || ended || c.node != q.nodes[i].name) {
		// The node was removed by Break or has expired. Or a reply was lost, and the identity has a place
		// that this handle did not know of, which counts.
		if err := s.undo(ctx, c); err != nil || i < 0 {
			return answer, changed(err)
		}
		c = nil
	}
	switch {
	case ended: // the identity must not be granted again beside its own kept record
		return s.refuse(ctx, q, len(q.nodes), req)
	case i < 0 && req.Queue, len(q.nodes) == 0: // the node is gone, or the name is free
		return answer, errChanged
	case i < 0:
		return s.decide(ctx, nil, q, len(q.nodes), req, nil)
	case c == nil:
		for j, n := range q.nodes[i+1:] { // nodes of further calls whose replies were lost or late
			if n.id != req.ID || n.kept {
				continue
			}
			if err := s.undo(ctx, q.claim(k, i+1+j)); err != nil {
				return answer, err
			}
		}
		recs, err := s.read(ctx, q, q.nodes[i])
		if err != nil {
			return answer, err
		}
		if c, err = s.takeOver(ctx, k, q, i, recs[0]); err != nil {
			return answer, err
		}
	}
	rec, _ := s.state(c)
	if err := store.SameClaim(req, rec.Mode, rec.Weight, rec.Limit); err != nil {
		return answer, err
	}
	s.mu.Lock()
	c.crowd, c.closes = len(q.nodes) > 1, closes
	s.mu.Unlock()
	if rec.granted {
		rec.TTL = req.TTL
		return s.grant(ctx, c, rec, q, i)
	}
	if req.Queue && q.nodes[i].try { // others do not wait behind such a node
		return answer, changed(s.undo(ctx, c))
	}
	return s.decide(ctx, c, q, i, req, room)
}

// join puts a request at the end of the queue. If the identity has a place that this handle does not know
// of, reading the queue afterwards finds both.
func (s *Store) join(parent string, req *store.Request) *wire.Call {
	c := newClaim(req, parent)
	op := wire.Create(parent+"/"+requestNode(req), c.rec.encode(), s.acl, wire.EphemeralSequential)
	return &wire.Call{Op: op, Then: func(call *wire.Call) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if call.Err == nil {
			c.node = call.Path[len(parent)+1:]
			s.adopt(c, &call.Stat)
		}
		s.suspect(c, call.Err)
	}}
}

// decide grants the request with the claim c at place i if it is its turn, and refuses it otherwise. A request
// that does not wait has no claim at first: it joins the queue only if it can be granted behind others, which
// an exclusive one cannot. Room is the watch of the parent if c is known to be next.
func (s *Store) decide(ctx context.Context, c *claim, q *queue, i int, req *store.Request, room <-chan struct{}) (answer store.Answer, err error) {
	front := room
	if i > 0 && req.Queue && room == nil {
		front = s.watch(q.parent+"/"+q.nodes[i-1].name, req.Mode == store.Exclusive)
	}
	turn, err := s.isTurn(ctx, q, i, req)
	if err == nil && !turn {
		answer, err = s.refuse(ctx, q, i, req)
	}
	switch {
	case err != nil:
		return answer, s.undoInvalid(ctx, c, err)
	case turn && c == nil:
		return answer, changed(s.wire.Do(ctx, s.join(q.parent, req))) // then read the queue again
	case turn:
		return s.grant(ctx, c, record{Request: *req}, q, i)
	case c == nil:
		return answer, nil
	case !req.Queue:
		return answer, s.undo(ctx, c)
	case answer.Refusal.Place > wake.MaxQueue: // each of them lists the queue
		return store.Answer{}, cmp.Or(s.undo(ctx, c), wake.Crowded(req.Name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.next = req.Mode == store.Permits && answer.Refusal.Place == 1; c.next && room == nil {
		return store.Answer{}, errChanged // every holder can make room, so watch the parent and read again
	}
	if c.turn = front; s.claims[c.Key] == c {
		s.arm(c, s.heartbeat)
	}
	return answer, nil
}

// isTurn reports whether a request can be granted at place i: it is the first, or it may hold the name
// together with those in front of it. For that it reads the data of the last granted request in front. The
// error is errChanged if that one has left, because a kept record may have taken its place.
func (s *Store) isTurn(ctx context.Context, q *queue, i int, req *store.Request) (bool, error) {
	if i == 0 || req.Mode == store.Exclusive {
		return i == 0, nil
	}
	weight := 0
	for _, n := range q.nodes[:i] {
		weight += n.weight
	}
	for j := i - 1; j >= 0; j-- {
		recs, err := s.read(ctx, q, q.nodes[j])
		if err != nil || recs[0].record == nil {
			return false, changed(err)
		}
		rec := recs[0].record
		if rec.Mode != req.Mode || rec.Limit != req.Limit || !rec.granted && !q.nodes[j].try {
			return false, nil
		}
		if rec.granted {
			break // all holders have this mode and limit
		}
		// It is a single attempt, which will be removed, or granted beside this request.
	}
	var u store.Usage
	u.Add(req.Mode, weight, req.Limit)
	return u.Admits(req.Mode, req.Weight, req.Limit), nil
}

// holders counts the holders of a name, and reads the records of up to most of them. A holder that has left
// since the queue was listed counts, with a record that is nil, as does a single attempt that is not granted
// and has no waiter in front.
func (s *Store) holders(ctx context.Context, q *queue, most int) (n int, list []standing, err error) {
	for most = min(most, len(q.nodes)); n < most; {
		// The first node often belongs to the only holder, or to one that has just left.
		recs, err := s.read(ctx, q, q.nodes[n:min(2*n+1, most)]...)
		if err != nil {
			return 0, nil, err
		}
		for _, r := range recs {
			if r.record != nil && !r.granted {
				if !q.nodes[n].try {
					return n, list, nil
				}
				r.record = nil
			}
			list = append(list, r)
			if n++; r.record != nil && r.Mode == store.Exclusive {
				return n, list, nil
			}
		}
	}
	// The holders are at the beginning of the queue. Find the last one by bisection. A node that is gone, or
	// of a single attempt that is not granted, is as the one in front of it.
	more := sort.Search(len(q.nodes)-n, func(i int) bool {
		for _, node := range slices.Backward(q.nodes[n : n+i+1]) {
			recs, failed := s.read(ctx, q, node)
			if failed != nil {
				err = failed
				return true
			}
			if recs[0].record != nil && (recs[0].granted || !node.try) {
				return !recs[0].granted
			}
		}
		return false
	})
	return n + more, list, err
}

// waiters counts the requests queued behind the holders, except those of one identity, which may have two
// nodes: see join.
func (q *queue) waiters(holders int, except store.ID) (n int) {
	for _, node := range q.nodes[holders:] {
		if !node.try && node.id != except {
			n++
		}
	}
	return n
}

// refuse returns why the request at place i is not granted, or errChanged if it was granted. The error matches
// ErrInvalid if the request can never be combined with the holders. Waiters do not count, because they may be
// invalid themselves, and dead.
func (s *Store) refuse(ctx context.Context, q *queue, i int, req *store.Request) (answer store.Answer, err error) {
	n, list, err := s.holders(ctx, q, store.MaxHolders)
	if err != nil {
		return answer, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return answer, err
	}
	r := &store.Refusal{Waiters: q.waiters(n, req.ID), Again: s.heartbeat / 3}
	var u store.Usage
	for j, held := range list {
		if held.record == nil {
			continue
		}
		if err := store.Mixes(req.Name, req.Mode, req.Limit, held.Mode, held.Limit); err != nil {
			return answer, err
		}
		h := held.holder(now)
		r.Holders = append(r.Holders, h)
		u.Add(h.Mode, h.Weight, req.Limit)
		if q.nodes[j].kept {
			r.Again = max(time.Millisecond, min(r.Again, h.Left))
		}
	}
	if n == len(list) && u.Admits(req.Mode, req.Weight, req.Limit) {
		r.Holders = nil // the request only waits behind earlier waiters
	}
	if i < len(q.nodes) && req.Queue {
		if r.Place = 1 + r.Waiters - q.waiters(i+1, store.ID{}); i < n { // granted since
			return answer, errChanged
		}
	}
	return store.Answer{Refusal: r}, nil
}

// holder returns the description of a holder for a listing or a refusal.
func (r standing) holder(now int64) store.Holder {
	return store.Holder{
		ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Token: r.token, State: r.state,
		Age:  time.Duration(max(0, now-r.since)) * time.Millisecond,
		Left: max(0, time.Duration(r.stat.Mtime-now)*time.Millisecond+r.TTL),
	}
}
