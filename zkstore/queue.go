package zkstore

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// A queue is what stands at a name, in order of arrival. Who holds it is always the beginning:
// nobody is granted before those in front of it are.
type queue struct {
	parent string
	nodes  []node
}

// look reads who stands at a name, and removes what a release kept and whose time is over. It
// is nil if the name is not in use.
func (s *Store) look(name string) (*queue, error) {
	parent, _ := s.place(name)
	if err := s.catchUp(parent); err != nil {
		return nil, err
	}
	return s.lookAt(parent)
}

// catchUp makes what is read next as new as what others have been told: one server may be
// behind the rest.
func (s *Store) catchUp(path string) error {
	_, err := s.conn.Sync(path)
	return err
}

// lookAt is look for whoever has just written, or was told by this server of a change: that
// is as new as it has to be.
func (s *Store) lookAt(parent string) (*queue, error) {
	names, _, err := s.conn.Children(parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	q := &queue{parent: parent, nodes: make([]node, 0, len(names))}
	for _, name := range names {
		if n, ok := parseNode(name); ok {
			q.nodes = append(q.nodes, n)
		}
	}
	slices.SortFunc(q.nodes, func(a, b node) int { return before(&a, &b) })
	for i := 0; i < len(q.nodes); {
		alive := true
		if n := &q.nodes[i]; n.kept {
			if alive, err = s.stillKept(q, n); err != nil {
				return nil, err
			}
		}
		if alive {
			i++
		} else {
			q.nodes = slices.Delete(q.nodes, i, i+1)
		}
	}
	return q, nil
}

// stillKept reads what a release kept, and removes it if its time is over by the clock of
// the servers, which wrote when it began.
func (s *Store) stillKept(q *queue, n *node) (bool, error) {
	rec, stat, err := s.read(q, n)
	if err != nil || rec == nil {
		return false, err
	}
	now, err := s.now()
	if err != nil {
		return false, err
	}
	n.rec, n.id, n.weight, n.limit = rec, rec.id, rec.weight, rec.limit
	if n.rec.ttl -= time.Duration(now-stat.Mtime) * time.Millisecond; n.rec.ttl > 0 {
		return true, nil
	}
	if err := s.conn.Delete(q.parent+"/"+n.name, stat.Version); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return false, err
	}
	return false, nil
}

// read returns the record of a node, or nil if it is gone.
func (s *Store) read(q *queue, n *node) (*record, *zk.Stat, error) {
	data, stat, err := s.conn.Get(q.parent + "/" + n.name)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	rec, err := parseRecord(data, stat)
	return rec, stat, err
}

// find returns the place of an identity, or -1.
func (q *queue) find(id store.ID) int {
	return slices.IndexFunc(q.nodes, func(n node) bool { return n.id == id })
}

// stand makes an attempt at a name that is in use, from a place in its queue. It is not ok if
// it is to be tried anew.
func (s *Store) stand(ctx context.Context, req *store.Request) (answer store.Answer, ok bool, err error) {
	var closes <-chan struct{}
	parent, _ := s.place(req.Name)
	if req.Queue { // before the look, so that nothing is missed
		if closes, err = s.watch(parent, watchData); err != nil || closes == nil {
			return answer, false, err
		}
	}
	if !s.isNews(key{req.Name, req.ID}) {
		if err := s.catchUp(parent); err != nil {
			return answer, false, err
		}
	}
	q, err := s.lookAt(parent)
	if err != nil || q == nil {
		return answer, false, err
	}
	i := q.find(req.ID)
	if i < 0 {
		if c := s.claimOf(key{req.Name, req.ID}); c != nil {
			s.forget(c) // it was broken, or has expired
		}
		return s.join(q, req)
	}
	if n := &q.nodes[i]; n.kept && n.rec.state != store.Held {
		// A grant that ended: it must not come back to life beside its own record.
		answer.Refusal, err = s.refuse(q, -1, req)
		return answer, err == nil && answer.Refusal != nil, err
	}
	c := s.claimOf(key{req.Name, req.ID})
	if c == nil || q.nodes[i].kept {
		if c, err = s.takeOver(req.Name, q, i); c == nil || err != nil {
			return answer, false, err
		}
	}
	if err := c.rec.same(req); err != nil {
		return answer, false, err
	}
	s.mu.Lock()
	c.crowd = len(q.nodes) > 1
	c.closes = closes
	s.mu.Unlock()
	if c.rec.granted {
		return s.again(c, q, i, req)
	}
	return s.judge(ctx, c, q, i, req)
}

// isNews reports whether a look may rely on what this server knows: the request has just
// been tried or queued, or its turn was told.
func (s *Store) isNews(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mine[k]
	if c == nil || c.turn == nil && !c.rec.granted {
		return true
	}
	select {
	case <-c.turn:
		return true
	default:
		return false
	}
}

// join puts a request at the end, or refuses it at once if it would not wait there.
func (s *Store) join(q *queue, req *store.Request) (answer store.Answer, ok bool, err error) {
	if err := q.mixes(-1, req); err != nil {
		return answer, false, err
	}
	if !req.Queue && len(q.nodes) > 0 && !q.fits(len(q.nodes), nil, req) {
		// A reader that steps down looks like a writer here, hence the second look.
		if fits, err := s.besideHolder(q, req); err != nil || !fits {
			if err == nil {
				answer.Refusal, err = s.refuse(q, -1, req)
			}
			return answer, err == nil && answer.Refusal != nil, err
		}
	}
	rec := recordOf(req)
	session := s.currentSession()
	path, err := s.conn.Create(q.parent+"/"+requestNode(req), rec.encode(), zk.FlagEphemeralSequential, s.acl)
	if errors.Is(err, zk.ErrNoNode) {
		return answer, false, nil // the parent went with the last one
	}
	if err != nil {
		return answer, false, err
	}
	c := &claim{key: key{req.Name, req.ID}, parent: q.parent, node: path[len(q.parent)+1:], rec: rec, index: -1}
	c.end = time.Now().Add(s.heartbeat)
	return answer, false, s.adoptNew(c, session) // and look again
}

// besideHolder reports whether a request fits beside the only ones there, which is not seen
// from their names if the first has stepped down from exclusive mode.
func (s *Store) besideHolder(q *queue, req *store.Request) (bool, error) {
	first := &q.nodes[0]
	if first.kept || first.mode != store.Exclusive || req.Mode != store.Shared {
		return false, nil
	}
	rec, _, err := s.read(q, first)
	if err != nil || rec == nil {
		return rec == nil, err
	}
	return rec.granted && q.fits(len(q.nodes), rec, req), nil
}

// mixes returns an ErrInvalid if the request, at place i, can never go together with others.
func (q *queue) mixes(i int, req *store.Request) error {
	for j := range q.nodes {
		n := &q.nodes[j]
		if j == i || n.id == req.ID {
			continue
		}
		if err := store.Mixes(req.Name, req.Mode, req.Limit, n.mode, n.limit); err != nil {
			return err
		}
	}
	return nil
}

// fits reports whether a request fits beside all that stand before place i. First is the
// record of the first of them, if it was read.
func (q *queue) fits(i int, first *record, req *store.Request) bool {
	var u store.Usage
	for j := range q.nodes[:i] {
		n := &q.nodes[j]
		mode := n.mode
		if j == 0 && first != nil {
			mode = first.mode
		}
		if !u.Admits(mode, n.weight, n.limit) && mode == store.Exclusive {
			return false
		}
		u.Add(mode, n.weight, n.limit)
	}
	return u.Admits(req.Mode, req.Weight, req.Limit)
}

// judge grants the request at place i if it is its turn, and refuses it otherwise.
func (s *Store) judge(ctx context.Context, c *claim, q *queue, i int, req *store.Request) (answer store.Answer, ok bool, err error) {
	if err := q.mixes(i, req); err != nil {
		return answer, false, errors.Join(err, s.undo(c))
	}
	turn := i == 0
	if i > 0 && req.Mode != store.Exclusive {
		var gone bool
		turn, gone, err = s.besides(c, q, i, req)
		if errors.Is(err, store.ErrInvalid) {
			err = errors.Join(err, s.undo(c))
		}
		if gone || err != nil {
			return answer, false, err
		}
	} else if i > 0 && req.Queue {
		// Only the end of the one in front matters, which a watch for children tells: they
		// have none. Others are also for changes of data, such as every renewal.
		gone, err := s.watchTurn(c, q.parent+"/"+q.nodes[i-1].name, watchEnd)
		if gone || err != nil {
			return answer, false, err
		}
	}
	if turn {
		return s.grant(c, q, i, req)
	}
	if err := ctx.Err(); err != nil {
		return answer, false, err
	}
	answer.Refusal, err = s.refuse(q, i, req)
	if err == nil && answer.Refusal == nil {
		return answer, false, nil
	}
	if err == nil && !req.Queue {
		err = s.undo(c)
	}
	if err == nil {
		s.mu.Lock()
		c.end = time.Now().Add(s.heartbeat)
		s.keeper.put(c)
		s.mu.Unlock()
	}
	return answer, err == nil, err
}

// undo removes the node of a request that is not to wait.
func (s *Store) undo(c *claim) error {
	err := s.remove(c)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// besides decides for a request that may hold the name together with those in front of it:
// that needs the data of the last one of them that is granted. It is gone if one left
// meanwhile.
func (s *Store) besides(c *claim, q *queue, i int, req *store.Request) (turn, gone bool, err error) {
	if req.Queue {
		if gone, err = s.watchTurn(c, q.parent+"/"+q.nodes[i-1].name, watchData); gone || err != nil {
			return false, gone, err
		}
	}
	for j := i - 1; j >= 0; j-- {
		n := &q.nodes[j]
		rec := n.rec
		if !n.kept {
			if rec, _, err = s.read(q, n); err != nil || rec == nil {
				return false, rec == nil && err == nil, err
			}
		}
		if !n.kept && !rec.granted {
			if n.try {
				continue // is granted like us, or goes
			}
			return false, false, nil
		}
		if err := store.Mixes(req.Name, req.Mode, req.Limit, rec.mode, rec.limit); err != nil {
			return false, false, err
		}
		var u store.Usage
		u.Add(rec.mode, q.weight(i), rec.limit)
		return u.Admits(req.Mode, req.Weight, req.Limit), false, nil
	}
	return q.fits(i, nil, req), false, nil
}

// weight is what all before place i have.
func (q *queue) weight(i int) (sum int) {
	for j := range q.nodes[:i] {
		sum += q.nodes[j].weight
	}
	return sum
}

// holders returns how many hold the name, and the records of the first of them.
func (s *Store) holders(q *queue, most int) (n int, list []store.Holder, highest int64, err error) {
	now, err := s.now()
	if err != nil {
		return 0, nil, 0, err
	}
	holds := func(i int, note bool) (bool, error) {
		n := &q.nodes[i]
		rec, mtime := n.rec, now
		if !n.kept {
			r, stat, err := s.read(q, n)
			if err != nil || r == nil || !r.granted {
				return false, err
			}
			rec, mtime = r, stat.Mtime
		}
		if note {
			list = append(list, rec.holder(mtime, now))
			highest = max(highest, rec.last())
		}
		return true, nil
	}
	for n < len(q.nodes) && (most == 0 || n < most) {
		held, err := holds(n, true)
		if err != nil || !held {
			return n, list, highest, err
		}
		if n++; list[n-1].Mode == store.Exclusive { // then it is the only one
			return n, list, highest, nil
		}
	}
	// The rest is asked for by halves: who holds is the beginning of the queue.
	more := sort.Search(len(q.nodes)-n, func(i int) bool {
		held, failed := holds(n+i, false)
		if failed != nil {
			err = failed
		}
		return !held
	})
	return n + more, list, highest, err
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
func (s *Store) refuse(q *queue, i int, req *store.Request) (*store.Refusal, error) {
	n, list, highest, err := s.holders(q, store.MaxHolders)
	if err != nil {
		return nil, err
	}
	r := &store.Refusal{Highest: highest, Waiters: q.waiters(n, i), Again: s.heartbeat / 3}
	var u store.Usage
	for j := range list {
		u.Add(list[j].Mode, list[j].Weight, req.Limit)
		if list[j].State != store.Held || q.nodes[j].kept {
			r.Again = max(time.Millisecond, min(r.Again, list[j].Left))
		}
	}
	if !u.Admits(req.Mode, req.Weight, req.Limit) || n > len(list) {
		r.Holders = list
	}
	if i >= 0 && req.Queue {
		r.Place = i - n + 1
		for j := n; j < i; j++ {
			if q.nodes[j].try {
				r.Place--
			}
		}
		if r.Place < 1 { // granted since
			return nil, nil
		}
	}
	return r, nil
}
