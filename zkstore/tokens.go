package zkstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A token is computed from the zxid, the number of the change that granted it. A zxid is greater
// than those of all earlier changes, but it has 64 bits, 32 of which count elections, and a
// token has 53. So zxids are cut into segments of at most span, and each zxid of a segment
// stands for a block of tokens:
//
//	token = offset + (zxid - start) × block
//
// A segment starts with the change that adds it to the table in the node ROOT/token. Its offset
// is above all tokens of the previous segment. So a token follows from the zxid of its grant and
// from entries that never change: a lost reply does not matter. A segment is added when the last
// one is used up, after an election, which makes zxids jump, and for tokens above a floor.
const (
	// block is how many tokens a change has, for hand-overs between goroutines. At a constant
	// rate of 20,000 changes a second, which is more than most ensembles can handle, tokens last
	// for 2^53 / (256 × 20,000/s) = 1.76e9 s, 55 years.
	block = 256

	// span bounds how many tokens an election wastes: with span × block = 2^26 there can be
	// 2^27 elections. The cost of adding a segment every 262,144 changes is negligible.
	span = 1 << 18
)

type segment struct{ start, offset int64 }

// A table is the content of ROOT/token. It is read once and watched. A server reports a change
// before it replies to a later request, so the table covers every zxid in a reply.
type table struct {
	known    bool
	exists   bool
	version  int32
	segments [2]segment // the newest first; a start of 0 means none
}

// at returns the first token of a change. Ok is false if no segment covers the change.
func (t *table) at(zxid int64) (token int64, ok bool) {
	for _, g := range t.segments {
		if n := zxid - g.start; n >= 0 && g.start > 0 {
			return g.offset + n*block, n < span
		}
	}
	return 0, false
}

// encode returns the table with one more segment, which starts with the change that writes it.
// The previous segment stays for grants whose tokens are not computed yet.
func (t *table) encode(offset int64) []byte {
	return fmt.Appendf(nil, "%d %d %d %d", recordVersion, offset, t.segments[0].start, t.segments[0].offset)
}

func (t *table) decode(data []byte, stat *wire.Stat) error {
	var version int
	g := &t.segments
	_, err := fmt.Sscan(string(data), &version, &g[0].offset, &g[1].start, &g[1].offset)
	if err != nil || version != recordVersion {
		return fmt.Errorf("zookeeper store: the node token holds %.40q, which this version cannot read, so tokens might not grow; restore it, or use another root", data)
	}
	g[0].start, t.version, t.exists, t.known = stat.Mzxid, stat.Version, true, true
	return nil
}

func (s *Store) tablePath() string { return s.root + "/token" }

// table returns the table, and reads it if it is not known.
func (s *Store) table(ctx context.Context) (t table, err error) {
	err = again(func() error {
		s.mu.Lock()
		t = s.tokens
		s.mu.Unlock()
		if t.known {
			return nil
		}
		outcome := errChanged
		exists := &wire.Call{Op: wire.Exists(s.tablePath(), true)} // watches for its creation
		get := &wire.Call{Op: wire.Get(s.tablePath(), true), Then: func(get *wire.Call) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if get.Err == wire.ErrNoNode && exists.Err == wire.ErrNoNode {
				s.tokens = table{known: true}
			} else if get.Err == nil {
				if err := s.tokens.decode(get.Data, &get.Stat); err != nil {
					outcome = err
				}
			}
		}}
		if err := ignoreNoNode(s.wire.Do(ctx, exists, get)); err != nil {
			return err
		}
		return outcome
	})
	return t, err
}

// raise adds a segment unless changes after zxid have tokens above floor.
func (s *Store) raise(ctx context.Context, zxid, floor int64) error {
	return again(func() error {
		t, err := s.table(ctx)
		if err != nil {
			return err
		}
		if token, ok := t.at(max(zxid, t.segments[0].start) + 1); ok && token > floor {
			return nil
		}
		offset := floor + 1
		if t.exists {
			offset = max(offset, t.segments[0].offset+span*block)
		}
		if offset > store.MaxToken {
			return store.NoTokens(floor)
		}
		op := wire.Set(s.tablePath(), t.encode(offset), t.version)
		if !t.exists {
			op = wire.Create(s.tablePath(), t.encode(offset), s.acl, wire.Persistent)
		}
		err = s.wire.Do(ctx, &wire.Call{Op: op})
		if err == nil || err == wire.ErrBadVersion || err == wire.ErrNodeExists { // this client or another has added one
			s.mu.Lock()
			s.tokens.known = false
			s.mu.Unlock()
			return errChanged
		}
		return err
	})
}

// settle returns the record of a grant with its tokens, or errChanged if the grant is gone. If the
// change that granted it has no token above the floor, the record is written once more.
func (s *Store) settle(ctx context.Context, c *claim) (rec record, err error) {
	err = again(func() error {
		var zxid int64
		if rec, zxid = s.state(c); rec.token != 0 {
			return nil
		}
		t, err := s.table(ctx)
		if err != nil {
			return err
		}
		token, ok := t.at(zxid)
		if !ok || token <= rec.Floor {
			if err := s.raise(ctx, zxid, rec.Floor); err != nil {
				return err
			}
			if err = s.save(ctx, c, rec); err == errChanged {
				return errLost // the grant is gone
			}
			return changed(err)
		}
		if token > store.MaxToken {
			return store.NoTokens(rec.Floor)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.zxid == zxid {
			c.rec.token, c.rec.Tokens = token, int(min(int64(rec.Tokens), store.MaxToken-token+1))
		}
		return errChanged // read it again
	})
	if err == errLost {
		err = errChanged
	}
	return rec, err
}

// A clock is the time of the servers, which they report with every change.
type clock struct {
	server int64 // in ms
	local  time.Time
}

const clockLife = 10 * time.Second // how long a known time is used; after that, another server may be the leader

// now returns the servers' time in ms. It is never ahead of their clock, so nothing ends early. If
// the client may not write, or the root does not exist, now returns the time of this host.
func (s *Store) now(ctx context.Context) (int64, error) {
	s.mu.Lock()
	c := s.clock
	s.mu.Unlock()
	if passed := time.Since(c.local); !c.local.IsZero() && passed < clockLife {
		return c.server + passed.Milliseconds(), nil
	}
	set := &wire.Call{Op: wire.Set(s.root, nil, wire.AnyVersion)}
	err := s.wire.Do(ctx, set)
	if err == wire.ErrNoAuth || err == wire.ErrNoNode { // no right to write, or nothing to read
		return time.Now().UnixMilli(), nil
	}
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = clock{set.Stat.Mtime, time.Now()}
	return set.Stat.Mtime, nil
}
