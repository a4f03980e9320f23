package sqlitestore

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// Wake-ups between processes are datagrams on this host. A handle that waits listens on an
// address of its own, which it writes beside its waiters; whoever lets a waiter in sends
// its identity there. So nobody polls, nobody is woken but the one whose turn it is, and
// nothing is left of a process that dies. A datagram that gets lost costs a moment: the
// waiter asks again within Refusal.Again.

// sendTimeout bounds the push to a process that does not read. It polls then.
const sendTimeout = time.Millisecond

// pushIDs is how many identities go into one datagram.
const pushIDs = 32

// A wakeUp is a push to send once the transaction is over.
type wakeUp struct {
	name string
	id   store.ID
	addr string
}

// A waitState is a queued identity that asked through this handle.
type waitState struct {
	wake  wake.Signal
	until time.Time // forgotten then unless it asks again
}

// pushes are what a handle listens for. It has a socket and a goroutine while anybody
// waits, and for a heartbeat longer so that they are not made anew for every wait.
type pushes struct {
	open   func() (net.PacketConn, string, error) // listenPush, but for tests
	keep   time.Duration                          // for how long who does not ask is known
	mu     sync.Mutex
	waits  map[wake.Key]*waitState
	conn   net.PacketConn
	addr   string
	closed bool
}

// expect notes that an identity is being refused: what comes from now on is news to it. It
// returns the address to push to, "" if there is none.
func (p *pushes) expect(name string, id store.ID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ""
	}
	key := wake.Key{Name: name, ID: id}
	w := p.waits[key]
	if w == nil {
		if p.waits == nil {
			p.waits = make(map[wake.Key]*waitState)
		}
		w = new(waitState)
		p.waits[key] = w
	}
	w.wake.Reset()
	w.until = time.Now().Add(p.keep)
	if p.conn == nil {
		conn, addr, err := p.open()
		if err != nil {
			return "" // it asks more often instead
		}
		p.conn, p.addr = conn, addr
		go p.listen(conn)
	}
	return p.addr
}

// forget ends the wait of an identity that is not queued any more.
func (p *pushes) forget(name string, id store.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := wake.Key{Name: name, ID: id}
	if w := p.waits[key]; w != nil {
		w.wake.Send()
		delete(p.waits, key)
	}
}

func (p *pushes) wake(name string, id store.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waits[wake.Key{Name: name, ID: id}]; w != nil {
		w.wake.Send()
	}
}

func (p *pushes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.shut()
}

// shut needs the mutex.
func (p *pushes) shut() {
	if p.conn != nil {
		p.conn.Close()
		p.conn, p.addr = nil, ""
	}
}

// listen ends when nobody waits any more.
func (p *pushes) listen(conn net.PacketConn) {
	buf := make([]byte, 1+pushIDs*len(store.ID{})+store.MaxName)
	look := time.Now()
	for {
		conn.SetReadDeadline(look.Add(heartbeat))
		n, _, err := conn.ReadFrom(buf)
		if err == nil {
			name, ids := readPush(buf[:n])
			for _, id := range ids {
				p.wake(name, id)
			}
			continue
		}
		look = time.Now()
		if p.idle(conn, !errors.Is(err, os.ErrDeadlineExceeded)) {
			return
		}
	}
}

// idle forgets who stopped asking. It closes the socket and is true if nobody is left, or
// if the socket is broken: the next to wait opens another.
func (p *pushes) idle(conn net.PacketConn, broken bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for key, w := range p.waits {
		if now.After(w.until) {
			w.wake.Send()
			delete(p.waits, key)
		}
	}
	if len(p.waits) > 0 && !broken {
		return false
	}
	if p.conn == conn {
		p.shut()
	}
	return true
}

// send delivers wake-ups, to each process in one go.
func (p *pushes) send(wakes []wakeUp) {
	for len(wakes) > 0 {
		to := wakes[0]
		var ids []store.ID
		wakes = slices.DeleteFunc(wakes, func(w wakeUp) bool {
			same := w.addr == to.addr && w.name == to.name && len(ids) < pushIDs
			if same {
				ids = append(ids, w.id)
			}
			return same
		})
		p.mu.Lock()
		own := to.addr == p.addr
		p.mu.Unlock()
		switch {
		case to.addr == "":
		case own:
			for _, id := range ids {
				p.wake(to.name, id)
			}
		default:
			push(to.addr, writePush(to.name, ids))
		}
	}
}

// push sends one datagram, or does not: nobody depends on it.
func push(addr string, message []byte) {
	network, to, _ := strings.Cut(addr, ":")
	if !strings.HasPrefix(to, "@holdfast-") && !strings.HasPrefix(to, "127.0.0.1:") {
		return // this host only, whatever the file says
	}
	conn, err := net.Dial(network, to)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	conn.Write(message)
}

// A push is the number of identities, these, and the name.
func writePush(name string, ids []store.ID) []byte {
	message := []byte{byte(len(ids))}
	for _, id := range ids {
		message = append(message, id[:]...)
	}
	return append(message, name...)
}

func readPush(message []byte) (name string, ids []store.ID) {
	const size = len(store.ID{})
	if len(message) == 0 || len(message) < 1+int(message[0])*size {
		return "", nil // not ours
	}
	n, message := int(message[0]), message[1:]
	for range n {
		ids = append(ids, store.ID(message[:size]))
		message = message[size:]
	}
	return string(message), ids
}

// Wait blocks until it is worth asking again for a queued identity: see [store.Store]. It
// returns nil at once if the identity was not queued through this handle.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	p := &s.pushes
	p.mu.Lock()
	var woken <-chan struct{}
	if w := p.waits[wake.Key{Name: name, ID: id}]; w != nil {
		woken = w.wake.C()
	}
	p.mu.Unlock()
	return wake.Wait(ctx, woken, s.done, errClosed)
}

// listenLoopback is for systems without socket addresses that belong to no file.
func listenLoopback() (net.PacketConn, string, error) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	return conn, "udp4:" + conn.LocalAddr().String(), nil
}
