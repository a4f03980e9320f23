package zkstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// helloLimit bounds how long a server may take to begin a session. The library waits for
	// almost seven session timeouts, and a server that hangs still accepts connections.
	helloLimit = 3 * time.Second

	// maxFrame is beyond every reply, also one that lists a million nodes.
	maxFrame = 1 << 30

	// writeLimit bounds how long a server may take to take a packet.
	writeLimit = 2 * time.Second
)

// A link is one connection of the library. It passes packets on as they are, but for what the
// library does not know, or not well:
//
//   - The usual requests do not go through the library: see ask.
//   - The first reply tells the session and its timeout, which the library keeps to itself.
//   - Watches are asked for here. The library's own stay until their node changes, though
//     nobody cares any more, and it sets them anew after the next answers have come, so that
//     news can be missed. Here they end with their connection, and who waits asks again.
//   - A container that is made in a transaction has a result of another kind than other nodes,
//     with a stat behind the path, which the library refuses. The link takes the stat out,
//     and puts what is worth to know of it in the place of the path.
type link struct {
	net.Conn
	in    *bufio.Reader
	rest  []byte // of the packet that is being read
	frame []byte
	begun bool // with the first reply; nothing but the first packet is sent before
	store *Store

	session int64 // as it began with, and for good

	mu      sync.Mutex
	multis  map[int32]struct{} // transactions of the library under way
	login   int32              // the number of the library's login, if it sent one
	ready   bool               // begun, and logged in
	own     jobs
	out     []byte
	spare   []byte
	writing bool  // somebody does, and takes along what there is in out
	failed  error // of writing or reading: it is over
}

func newLink(conn net.Conn, s *Store) *link {
	return &link{
		Conn: conn, in: bufio.NewReaderSize(conn, 64<<10), store: s,
		multis: make(map[int32]struct{}), own: newJobs(),
	}
}

// Write is called by the library with one packet at a time.
func (l *link) Write(p []byte) (int, error) {
	const path = 16               // behind its length; the last byte of these requests asks for a watch
	const session = 4 + 4 + 8 + 4 // of the first packet, which is no request, and looks like any
	switch {
	case !l.begun && len(p) >= session+8 && binary.BigEndian.Uint64(p[session:]) != 0:
		// A server that does not know yet what the session has seen elsewhere must not go on
		// with it. The library knows of its own replies only.
		seen := max(l.store.seen.Load(), int64(binary.BigEndian.Uint64(p[8:])))
		binary.BigEndian.PutUint64(p[8:], uint64(seen))
	case l.begun && len(p) > path:
		switch op := binary.BigEndian.Uint32(p[8:]); op {
		case opMulti:
			l.mu.Lock()
			l.multis[int32(binary.BigEndian.Uint32(p[4:]))] = struct{}{}
			l.mu.Unlock()
		case opAuth:
			l.mu.Lock()
			l.login = int32(binary.BigEndian.Uint32(p[4:]))
			l.mu.Unlock()
		case opExists, opGet, opChildren:
			if l.store.isWatched(op, string(p[path:len(p)-1])) {
				p = append(p[:len(p)-1:len(p)-1], 1)
			}
		}
	}
	l.mu.Lock()
	l.out = append(l.out, p...)
	return len(p), l.flush()
}

// flush writes what is in out, unless somebody is at it, who takes it along: of many small
// packets few writes become. It is called with the mutex and returns without.
func (l *link) flush() error {
	defer l.mu.Unlock()
	if l.writing || l.failed != nil {
		return l.failed
	}
	l.writing = true
	var err error
	for len(l.out) > 0 && err == nil {
		data := l.out
		l.out = l.spare[:0]
		l.mu.Unlock()
		l.Conn.SetWriteDeadline(time.Now().Add(writeLimit))
		_, err = l.Conn.Write(data)
		l.mu.Lock()
		l.spare = data
	}
	l.writing = false
	if err != nil {
		l.fail(err)
		l.Conn.Close()
	}
	return err
}

// SetWriteDeadline does nothing: each write has its own.
func (l *link) SetWriteDeadline(time.Time) error { return nil }

// Read returns what is for the library.
func (l *link) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if err := l.next(); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.fail(err)
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next reads a packet.
func (l *link) next() error {
	var size [4]byte
	if _, err := io.ReadFull(l.in, size[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > maxFrame {
		return io.ErrUnexpectedEOF
	}
	n := int(length)
	if cap(l.frame) < n+4 {
		l.frame = make([]byte, n+4)
	}
	l.frame = append(l.frame[:0], size[:]...)
	l.frame = l.frame[:n+4]
	if _, err := io.ReadFull(l.in, l.frame[4:]); err != nil {
		return err
	}
	switch {
	case !l.begun && n >= 16:
		l.begun = true
		timeout := time.Duration(binary.BigEndian.Uint32(l.frame[8:])) * time.Millisecond
		l.session = int64(binary.BigEndian.Uint64(l.frame[12:]))
		l.store.hello(l, timeout)
	case l.begun && n >= sizeHeader:
		xid := int32(binary.BigEndian.Uint32(l.frame[4:]))
		if l.answered(xid, l.frame) {
			return nil
		}
		if l.replied(xid) {
			l.frame = plainResult(l.frame)
		}
	}
	l.rest = l.frame
	return nil
}

// replied notes a reply to the library, and reports whether it is that of a transaction.
func (l *link) replied(xid int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if xid == l.login && xid != 0 && binary.BigEndian.Uint32(l.frame[16:]) == 0 {
		l.ready = l.failed == nil
	}
	_, ok := l.multis[xid]
	delete(l.multis, xid)
	return ok
}

// open makes a link ready that needs no login.
func (l *link) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = l.failed == nil
}

// plainResult makes the result of a container, which is the first of its transaction, that of
// any node.
func plainResult(frame []byte) []byte {
	first := 4 + sizeHeader
	path := first + sizeResult
	if len(frame) < path+4 || binary.BigEndian.Uint32(frame[first:]) != opCreate2 {
		return frame
	}
	stat := path + 4 + int(binary.BigEndian.Uint32(frame[path:]))
	if len(frame) < stat+sizeStat {
		return frame
	}
	change := formatChange(int64(binary.BigEndian.Uint64(frame[stat:])), int64(binary.BigEndian.Uint64(frame[stat+16:])))
	plain := make([]byte, 0, len(frame)+len(change))
	plain = append(plain, frame[:path]...)
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(change)))
	plain = append(plain, change...)
	plain = append(plain, frame[stat+sizeStat:]...)
	binary.BigEndian.PutUint32(plain[first:], opCreate)
	binary.BigEndian.PutUint32(plain, uint32(len(plain)-4))
	return plain
}

// formatChange and parseChange are how number and time of a change come out of a transaction
// that makes a container.
func formatChange(zxid, at int64) string {
	return strconv.FormatInt(zxid, 10) + " " + strconv.FormatInt(at, 10)
}

func parseChange(text string) (zxid, at int64, err error) {
	first, second, _ := strings.Cut(text, " ")
	if zxid, err = strconv.ParseInt(first, 10, 64); err == nil {
		at, err = strconv.ParseInt(second, 10, 64)
	}
	if err != nil {
		return 0, 0, errors.New("zookeeper store: this server does not tell the number of a change: want ZooKeeper 3.5 or later")
	}
	return zxid, at, nil
}

func (l *link) SetReadDeadline(t time.Time) error {
	if limit := time.Now().Add(helloLimit); !l.begun && limit.Before(t) {
		t = limit
	}
	return l.Conn.SetReadDeadline(t)
}
