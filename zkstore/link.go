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

	// Of ZooKeeper's protocol: kinds of requests, and sizes of what replies consist of.
	opCreate   = 1
	opExists   = 3
	opGet      = 4
	opChildren = 12
	opMulti    = 14
	opCreate2  = 15
	sizeHeader = 4 + 8 + 4 // of a reply: which request, number of the last change, error
	sizeResult = 4 + 1 + 4 // before each result of a transaction: kind, whether it is the last, error
	sizeStat   = 68
)

// A link is one connection of the library. It passes packets on as they are, but for three
// things that the library does not know, or not well:
//
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

	mu     sync.Mutex
	multis map[uint32]struct{} // transactions under way
}

func newLink(conn net.Conn, s *Store) *link {
	return &link{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10), store: s, multis: make(map[uint32]struct{})}
}

// Write is called with one packet at a time.
func (l *link) Write(p []byte) (int, error) {
	const path = 16               // behind its length; the last byte of these requests asks for a watch
	if l.begun && len(p) > path { // the first packet is no request, and looks like any
		switch op := binary.BigEndian.Uint32(p[8:]); op {
		case opMulti:
			l.mu.Lock()
			l.multis[binary.BigEndian.Uint32(p[4:])] = struct{}{}
			l.mu.Unlock()
		case opExists, opGet, opChildren:
			if l.store.isWatched(op, string(p[path:len(p)-1])) {
				p = append(p[:len(p)-1:len(p)-1], 1)
			}
		}
	}
	return l.Conn.Write(p)
}

func (l *link) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if err := l.next(); err != nil {
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
		l.store.hello(int64(binary.BigEndian.Uint64(l.frame[12:])), timeout)
	case l.begun && n >= sizeHeader && l.ofMulti(binary.BigEndian.Uint32(l.frame[4:])):
		l.frame = plainResult(l.frame)
	}
	l.rest = l.frame
	return nil
}

func (l *link) ofMulti(xid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.multis[xid]
	delete(l.multis, xid)
	return ok
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
