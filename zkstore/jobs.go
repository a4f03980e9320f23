package zkstore

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"
)

const (
	// firstOwn is the number of the first request that is not the library's, whose numbers
	// are positive. Those near zero have a meaning.
	firstOwn, lastOwn = math.MinInt32, math.MinInt32 / 2

	// maxFlying is how many requests are sent each for itself. Who comes while so many are
	// on their way goes with the next, together with all who have come by then.
	maxFlying = 4

	// maxBatch and maxBytes bound what goes together. A server takes a million bytes.
	maxBatch = 64
	maxBytes = 256 << 10
)

// Jobs are what is asked over a link without the library: by who asks, and not by a
// goroutine for all; packed by hand; whoever asks can stop waiting; and many go together as one
// transaction, which costs the servers a fraction of as many requests. If that fails because
// of one of them nothing was done, and each goes for itself.
type jobs struct {
	last    int32 // the number of one
	flying  map[int32][]*job
	waiting []*job
}

func newJobs() jobs {
	return jobs{last: firstOwn, flying: make(map[int32][]*job)}
}

// A job is a request for one name.
type job struct {
	alone   packet // as it is sent for itself
	parts   packet // as a part of a transaction
	behind  packet // if not nil: sent behind it, and nobody waits for what becomes of that
	whole   bool   // the parts need nothing behind them
	replies chan reply
}

// A reply is what became of a job.
type reply struct {
	change
	err error
}

// errNotSent means that nothing was done.
var errNotSent = errors.New("zookeeper store: not sent")

// ask sends a request. It is not ok if the link cannot be used.
func (l *link) ask(r *job) bool {
	l.mu.Lock()
	if !l.ready {
		l.mu.Unlock()
		return false
	}
	r.replies = make(chan reply, 1)
	if len(l.own.flying) >= maxFlying {
		l.own.waiting = append(l.own.waiting, r)
		l.mu.Unlock()
		return true
	}
	l.sendAlone(r)
	l.flush() // if it fails, the channel tells
	return true
}

// giveUp takes back a request that is not on its way yet.
func (l *link) giveUp(r *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.own.waiting, r); i >= 0 {
		l.own.waiting = slices.Delete(l.own.waiting, i, i+1)
		r.replies <- reply{err: errNotSent}
	}
}

// number is the next.
func (o *jobs) number() int32 {
	if o.last++; o.last == lastOwn {
		o.last = firstOwn + 1
	}
	return o.last
}

// sendAlone needs the mutex, and a flush must follow.
func (l *link) sendAlone(r *job) {
	xid := l.own.number()
	l.own.flying[xid] = []*job{r}
	l.out = append(l.out, r.alone.numbered(xid)...)
	l.sendBehind(r)
}

func (l *link) sendBehind(r *job) {
	if r.behind != nil {
		l.out = append(l.out, r.behind.numbered(l.own.number())...)
	}
}

// sendNext sends those who wait, likewise.
func (l *link) sendNext() {
	n, size := 0, 0
	for n < len(l.own.waiting) && n < maxBatch && size < maxBytes {
		size += len(l.own.waiting[n].parts)
		n++
	}
	if n == 0 {
		return
	}
	batch := slices.Clone(l.own.waiting[:n])
	l.own.waiting = slices.Delete(l.own.waiting, 0, n)
	if n == 1 {
		l.sendAlone(batch[0])
		return
	}
	p := newPacket(opMulti)
	for _, r := range batch {
		p = append(p, r.parts...)
	}
	xid := l.own.number()
	l.own.flying[xid] = batch
	l.out = append(l.out, p.end().numbered(xid)...)
	for _, r := range batch {
		if !r.whole {
			l.sendBehind(r)
		}
	}
}

// answered takes a reply to one of them, and reports whether it is one.
func (l *link) answered(xid int32, frame []byte) bool {
	if xid > lastOwn {
		return false
	}
	l.store.saw(int64(binary.BigEndian.Uint64(frame[8:])))
	l.mu.Lock()
	batch := l.own.flying[xid]
	if batch == nil { // nobody waits for it
		l.mu.Unlock()
		return true
	}
	delete(l.own.flying, xid)
	var r reply
	r.change, r.err = readReply(frame)
	if r.err != nil && len(batch) > 1 {
		for _, one := range batch {
			l.sendAlone(one)
		}
		batch = nil
	} else if len(l.own.flying) < maxFlying {
		l.sendNext()
	}
	for _, one := range batch {
		one.replies <- r
	}
	l.flush()
	return true
}

// fail ends all requests: what became of those on their way is not known. It needs the mutex.
func (l *link) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed, l.ready = err, false
	for xid, batch := range l.own.flying {
		for _, r := range batch {
			r.replies <- reply{err: zk.ErrConnectionClosed}
		}
		delete(l.own.flying, xid)
	}
	for _, r := range l.own.waiting {
		r.replies <- reply{err: errNotSent}
	}
	l.own.waiting = nil
}
