package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Passer is a node store that can pass a note from a holder to the next waiter. If all nodes
// implement it, a holder of a contended name can pass its votes on.
type Passer interface {
	// AcquireNoted is like Acquire, and a holder may pass the name on to a request that it queues:
	// see Pass. Then it returns the note as well, as long as the grant exists, and the time since the
	// request that was granted was sent. Requests of other handles get no note.
	AcquireNoted(ctx context.Context, req store.Request) (answer store.Answer, note string, age time.Duration, err error)

	// Pass ends the grant of id and grants the name to the first waiter, in one step, if token is the
	// token of that grant, the waiter was queued by AcquireNoted and wants one token, and the node had
	// executed the last request of the waiter before it granted that token. The waiter gets a token
	// above floor.
	// Otherwise Pass changes nothing. It returns false if id still has the grant, and ErrNotHeld if
	// not: then an earlier copy of the message may have passed it on.
	Pass(ctx context.Context, name string, id store.ID, token, floor int64, note string) (passed bool, err error)

	// LeaveNoted is like Leave, and returns the note that the grant of id came with.
	LeaveNoted(ctx context.Context, name string, id store.ID) (note string, err error)

	// Rename gives the exclusive grant of an identity to another one, with the owner, meta and TTL of
	// the request. If the first token of the grant is not above token, the grant has the tokens from
	// token on from then on. Rename returns true without a change of the identity if the other one has
	// the grant already, and false if neither has a grant.
	Rename(ctx context.Context, from store.ID, to store.Request, token int64) (renamed bool, err error)
}

// note returns the note that passes a baton on. List identifies the list of nodes.
func (b *baton) note(list uint32, spent time.Duration) string {
	return fmt.Sprintf("%s %d %d %d %d %d", b.id, list, b.next, b.last, int64((spent+time.Microsecond-1)/time.Microsecond), b.ttl.Milliseconds())
}

// parseNote parses a note. It returns the time that was spent when the note was sent.
func parseNote(note string, list uint32) (b baton, spent time.Duration, err error) {
	var id string
	var of uint32
	var micros, millis int64
	if _, err = fmt.Sscanf(note, "%s %d %d %d %d %d", &id, &of, &b.next, &b.last, &micros, &millis); err != nil {
		return b, 0, err
	}
	if b.id, err = store.ParseID(id); err == nil && of != list {
		err = errList
	}
	b.ttl = time.Duration(millis) * time.Millisecond
	return b, time.Duration(micros) * time.Microsecond, err
}

var errList = errors.New("the note is from a client with other nodes")

// listOf returns a hash of the list of nodes.
func (s *Store) listOf() uint32 {
	h := fnv.New32a()
	for _, n := range s.nodes {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(n.name)))
		h.Write(size[:])
		h.Write([]byte(n.name))
	}
	return h.Sum32()
}

// acquireNoted sends a request to the bell. It returns the baton that came with the grant, if there is
// one. The request that was granted had been sent before the previous holder passed the baton on. So
// the baton is not older than it seems.
func (s *Store) acquireNoted(ctx context.Context, n *node, req store.Request) (store.Answer, *baton, error) {
	begin := s.now()
	answer, note, age, err := n.passer.AcquireNoted(ctx, req)
	if err != nil || note == "" || !answer.Granted() {
		return answer, nil, err
	}
	b, spent, err := parseNote(note, s.list)
	switch {
	case err == errList:
		b.last = b.next - 1 // it cannot be used, and is ended
	case err != nil:
		return answer, nil, nil
	}
	b.begin = s.rules.passedSince(begin-age, spent)
	return answer, &b, nil
}

// leaveAt sends a Leave to a node, for a caller that has the lane. A waiter that gives up at the moment
// when the previous holder passes its votes on ends these votes as well.
func (s *Store) leaveAt(ctx context.Context, se *session, n *node) error {
	id := se.idAt(n.index)
	if !s.passes {
		return n.Leave(ctx, se.key.name, id)
	}
	note, err := n.passer.LeaveNoted(ctx, se.key.name, id)
	if note == "" {
		return err
	}
	b, _, _ := parseNote(note, s.list)
	se.mu.Lock()
	own := se.baton != nil && se.baton.id == b.id
	se.mu.Unlock()
	if !own && !b.id.IsZero() {
		s.endBaton(se, b.id, n.index)
	}
	return err
}
