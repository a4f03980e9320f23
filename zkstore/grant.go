package zkstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// maxBlock bounds a block of tokens, so that no caller uses up what others need.
	maxBlock = 4096

	// baseStep is by how much the base is raised at least where blocks are wanted: whoever
	// wanted one will want the next.
	baseStep = 1 << 16

	// baseTries bounds how often a raise of the base is tried against others.
	baseTries = 20
)

// The base is added to the number of a change to make a token. It is 0 until somebody needs
// more tokens than there are changes: a block of them, or tokens above a floor. It is one
// node for all names and only grows.
//
// It is read once and watched. A server tells of a change before it answers anything that
// came after that change, so whoever sees no news when its answer comes has the right base.
type base struct {
	value   int64
	version int32
	exists  bool
	known   bool
	gen     uint64 // of what is known
}

func (s *Store) basePath() string { return s.root + "/token" }

// tokenBase returns the base.
func (s *Store) tokenBase() (base, error) {
	for {
		s.mu.Lock()
		b := s.base
		s.mu.Unlock()
		if b.known {
			return b, nil
		}
		data, stat, err := s.conn.Get(s.basePath()) // and watch: see isWatched
		b.value, b.exists, b.known = 0, true, true
		if errors.Is(err, zk.ErrNoNode) {
			b.exists = false
			var found bool
			if found, _, err = s.conn.Exists(s.basePath()); found {
				continue
			}
		}
		if err != nil {
			return b, err
		}
		if b.exists {
			b.version = stat.Version
			if b.value, err = strconv.ParseInt(string(data), 10, 64); err != nil {
				return b, fmt.Errorf("zookeeper store: %s holds %.40q instead of a number: tokens would not grow; restore it, or use another root", s.basePath(), data)
			}
		}
		s.mu.Lock()
		if s.base.gen == b.gen {
			s.base = b
		}
		s.mu.Unlock()
	}
}

// baseChanged makes the next who needs the base read it. It needs the mutex.
func (s *Store) baseChanged() {
	s.base.known = false
	s.base.gen++
}

// grant makes a waiter at place i a holder. The write is agreed on by a majority, in this
// session: what is read from one server may be old, and the session over.
func (s *Store) grant(c *claim, q *queue, i int, req *store.Request) (answer store.Answer, ok bool, err error) {
	added, err := s.tokenBase()
	if err != nil {
		return answer, false, err
	}
	rec := recordOf(req)
	rec.granted, rec.base = true, added.value
	if ok, err = s.write(c, rec); !ok || err != nil {
		return answer, false, err
	}
	answer, err = s.granted(c, req, added, q.waiters(i+1, i))
	return answer, true, err
}

// write changes a claim's record at the server. It is not ok, and the claim is forgotten, if
// the node is not there as it is known.
func (s *Store) write(c *claim, rec record) (ok bool, err error) {
	stat, err := s.conn.Set(c.path(), rec.encode(), c.version)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		s.forget(c)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.written(c, rec, stat)
}

// written notes a record that was written.
func (s *Store) written(c *claim, rec record, stat *zk.Stat) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stat.EphemeralOwner != s.session {
		s.drop(c)
		return errLost
	}
	c.rec = rec
	s.note(c, stat)
	if other := s.mine[c.key]; other == nil || other == c { // its end came, and came too late
		s.mine[c.key] = c
		c.end = time.Now().Add(rec.ttl)
		s.keeper.put(c)
	}
	return nil
}

// granted answers a request that was granted. Added is the base that was used.
func (s *Store) granted(c *claim, req *store.Request, added base, waiters int) (store.Answer, error) {
	now, err := s.tokenBase()
	if err != nil {
		return store.Answer{}, err
	}
	if req.Tokens > 1 || c.rec.token <= req.Floor || now.value != added.value {
		if err := s.reserve(c, req.Tokens, req.Floor, 0); err != nil {
			if errors.Is(err, store.ErrInvalid) {
				err = errors.Join(err, s.undo(c))
			}
			return store.Answer{}, err
		}
	}
	if c.rec.token > store.MaxToken {
		return store.Answer{}, errors.Join(tokensOver(c.rec.token), s.undo(c))
	}
	return store.Answer{Token: c.rec.token, Tokens: c.rec.tokens, TTL: c.rec.ttl, Waiters: waiters}, nil
}

// reserve gives a grant n tokens above floor and above. Whoever is granted the name later
// gets the number of a later change plus the base; so the base is raised until that is
// higher, together with the note of the block.
func (s *Store) reserve(c *claim, n int, floor, above int64) error {
	for range baseTries {
		b, err := s.tokenBase()
		if err != nil {
			return err
		}
		first := max(c.mzxid+b.value, floor+1, above+1)
		if first > store.MaxToken {
			return tokensOver(first - 1)
		}
		rec := c.rec
		rec.token, rec.tokens = first, int(min(int64(n), store.MaxToken-first+1))
		done, err := s.raise(c, rec, b, rec.last()-c.mzxid)
		if done || err != nil {
			return err
		}
	}
	return errCrowd
}

// raise writes a record, and a base of at least need. It is not done if somebody else changed
// the base.
func (s *Store) raise(c *claim, rec record, b base, need int64) (done bool, err error) {
	if need <= b.value {
		ok, err := s.write(c, rec)
		if err == nil && !ok {
			err = errLost
		}
		return true, err
	}
	if rec.tokens > 1 {
		need = max(need, min(b.value+baseStep, store.MaxToken-c.mzxid))
	}
	value := strconv.AppendInt(nil, need, 10)
	var first any = &zk.SetDataRequest{Path: s.basePath(), Data: value, Version: b.version}
	if !b.exists {
		first = &zk.CreateRequest{Path: s.basePath(), Data: value, Acl: s.acl}
	}
	results, err := s.conn.Multi(first, &zk.SetDataRequest{Path: c.path(), Data: rec.encode(), Version: c.version})
	if err == nil {
		return true, s.written(c, rec, results[1].Stat)
	}
	if len(results) == 2 && results[0].Error != nil { // somebody else was quicker
		s.mu.Lock()
		if s.base.gen == b.gen {
			s.baseChanged()
		}
		s.mu.Unlock()
		return false, nil
	}
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		s.forget(c)
		return false, errLost
	}
	return false, err
}

// again answers a grant that is asked for again: its TTL starts anew.
func (s *Store) again(c *claim, q *queue, i int, req *store.Request) (answer store.Answer, ok bool, err error) {
	rec := c.rec
	rec.ttl = req.TTL
	if ok, err = s.write(c, rec); !ok || err != nil {
		return answer, false, err
	}
	holders := i + 1
	if rec.mode != store.Exclusive {
		if holders, _, _, err = s.holders(q, 1); err != nil {
			return answer, false, err
		}
	}
	return store.Answer{Token: rec.token, Tokens: rec.tokens, TTL: rec.ttl, Waiters: q.waiters(holders, i)}, true, nil
}

func tokensOver(floor int64) error {
	return fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; find out where so high a floor comes from", store.ErrInvalid, floor)
}

// A clock tells the time of the servers, which write it at every change.
type clock struct {
	server int64 // in ms
	local  time.Time
}

// clockLife is how long a time that was told is relied on: another server may lead since.
const clockLife = 10 * time.Second

// note takes the time of a change that was just made. It needs the mutex.
func (c *clock) note(mtime int64) { c.server, c.local = mtime, time.Now() }

// now is the servers' time in ms, and never ahead of it: what ends by it does not end early.
func (s *Store) now() (int64, error) {
	s.mu.Lock()
	c := s.clock
	s.mu.Unlock()
	if passed := time.Since(c.local); !c.local.IsZero() && passed < clockLife {
		return c.server + passed.Milliseconds(), nil
	}
	stat, err := s.conn.Set(s.root, nil, -1)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.ensure(s.root); err == nil {
			stat, err = s.conn.Set(s.root, nil, -1)
		}
	}
	if errors.Is(err, zk.ErrNoAuth) { // it may only look
		return time.Now().UnixMilli(), nil
	}
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.clock.note(stat.Mtime)
	s.mu.Unlock()
	return stat.Mtime, nil
}
