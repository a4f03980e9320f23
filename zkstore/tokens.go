package zkstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A token is computed from the zxid, the number of the change that granted it. A zxid is greater than those
// of all earlier changes, but it has 64 bits, 32 of which count elections, and a token has 53. So zxids are
// cut into segments of at most span, and each zxid of a segment stands for a block of tokens:
//
//	token = offset + (zxid - start) × block
//
// A segment starts with the change that adds it to the table in the node ROOT/token. Its offset is above all
// tokens of the previous segment. So a token follows from the zxid of its grant and from entries that never
// change: a lost reply does not matter. A segment is added when the last one is used up, after an election,
// which makes zxids jump, and for tokens above a floor.
const (
	// block is how many tokens a change has. At a constant rate of 20,000 changes a second, tokens last for
	// 2^53 / (256 × 20,000/s) = 1.76e9 s, 55 years.
	block = 256

	// span bounds how many tokens an election wastes: with span × block = 2^26 there can be 2^27 elections.
	span = 1 << 18

	// maxSegments is the size of the table. The token of a grant is not known to other clients if so many
	// segments were added since.
	maxSegments = 32
)

type segment struct{ start, offset int64 }

// A table is the content of ROOT/token. It is read once and watched. A server reports a change
// before it replies to a later request, so the table covers every zxid in a reply.
type table struct {
	known    bool
	version  int32
	segments []segment // the newest first; none if the node does not exist
}

// newest returns the newest segment, or the zero value if there is none.
func (t *table) newest() segment {
	if len(t.segments) == 0 {
		return segment{}
	}
	return t.segments[0]
}

// at returns the first token of a change. Ok is false if no segment covers the change.
func (t *table) at(zxid int64) (token int64, ok bool) {
	for _, g := range t.segments {
		if n := zxid - g.start; n >= 0 {
			return g.offset + n*block, n < span
		}
	}
	return 0, false
}

// encode returns the table with one more segment, which starts with the change that writes it. Earlier
// segments stay, for grants whose records have no token.
func (t *table) encode(offset int64) []byte {
	data := fmt.Appendf(nil, "%d %d", recordVersion, offset)
	for _, g := range t.segments[:min(len(t.segments), maxSegments-1)] {
		data = fmt.Appendf(data, " %d %d", g.start, g.offset)
	}
	return data
}

func (t *table) decode(data []byte, stat *wire.Stat) error {
	unknown := unknownFormat(fmt.Sprintf("token with %.40q", data))
	var numbers []int64
	for field := range strings.FieldsSeq(string(data)) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return unknown
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < 2 || len(numbers)%2 != 0 || numbers[0] != recordVersion {
		return unknown
	}
	numbers[0] = stat.Mzxid // the newest segment starts with this change
	t.segments = nil
	for g := range slices.Chunk(numbers, 2) {
		t.segments = append(t.segments, segment{start: g[0], offset: g[1]})
	}
	t.version, t.known = stat.Version, true
	return nil
}

func (s *Store) tablePath() string { return s.root + "/token" }

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
		if token, ok := t.at(max(zxid, t.newest().start) + 1); ok && token > floor {
			return nil
		}
		offset, exists := floor+1, len(t.segments) > 0
		if exists {
			offset = max(offset, t.newest().offset+span*block)
		}
		if offset > store.MaxToken {
			return store.NoTokens(floor)
		}
		op := wire.Set(s.tablePath(), t.encode(offset), t.version)
		if !exists {
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
			if err = s.write(s.saving(ctx, c, rec)); err == errChanged {
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

// now returns the servers' time in ms. It is never ahead of their clock, so nothing ends early. If the client
// may not write, or the root does not exist, now returns the time of this host.
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
