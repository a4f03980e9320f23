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

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// Wake-ups between processes are datagrams on this host. A handle with waiters listens on its
// own address, which is stored with each waiter. The process that frees a name sends the
// identity of the next waiter to its address. If a datagram is lost, the waiter asks again within
// Refusal.Again.

// sendTimeout bounds a push to a process that does not read. Its waiters then have to poll. A socket
// takes about ten datagrams, and on a busy machine a process may need some time slices to read them.
const sendTimeout = 100 * time.Millisecond

const pushIDs = 32 // maximum number of identities in one datagram

// A wakeUp is a push to send after the commit.
type wakeUp struct {
	name string
	id   store.ID
	addr string
}

// pushes receives the wake-ups of a handle. It has a socket and a goroutine while there are
// waiters, and for up to a heartbeat longer, so that they are not recreated for every wait.
type pushes struct {
	open   func() (net.PacketConn, string, error) // listenPush, except in tests
	waits  wake.Table[struct{}]                   // identities that were queued through this handle
	mu     sync.Mutex
	conn   net.PacketConn
	addr   string
	closed bool
}

// expect is called when an identity is refused. It returns the address to push to, or "" if there is none.
func (p *pushes) expect(name string, id store.ID) string {
	p.waits.Expect(wake.Key{Name: name, ID: id}) // before it looks whether there is a socket: see idle
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ""
	}
	if p.conn == nil {
		conn, addr, err := p.open()
		if err != nil {
			return "" // the waiter polls instead
		}
		p.conn, p.addr = conn, addr
		go p.listen(conn)
	}
	return p.addr
}

func (p *pushes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.shut()
}

// shut closes the socket. The caller holds the mutex.
func (p *pushes) shut() {
	if p.conn != nil {
		p.conn.Close()
		p.conn, p.addr = nil, ""
	}
}

func (p *pushes) listen(conn net.PacketConn) {
	buf := make([]byte, 1+pushIDs*len(store.ID{})+store.MaxName)
	look := time.Now()
	for {
		conn.SetReadDeadline(look.Add(p.waits.Keep / 2))
		n, _, err := conn.ReadFrom(buf)
		if err == nil {
			p.waits.Wake(readPush(buf[:n])...)
			continue
		}
		look = time.Now()
		if p.idle(conn, !errors.Is(err, os.ErrDeadlineExceeded)) {
			return
		}
	}
}

// idle removes identities that stopped asking. If none is left, or the socket is broken, it
// closes the socket and returns true. The next waiter opens another socket.
func (p *pushes) idle(conn net.PacketConn, broken bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits.Sweep() > 0 && !broken {
		return false
	}
	if p.conn == conn {
		p.shut()
	}
	return true
}

// send delivers wake-ups, in one datagram per process and name.
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
		switch message := writePush(to.name, ids); {
		case to.addr == "":
		case own:
			p.waits.Wake(readPush(message)...)
		case !push(to.addr, message): // the rest would wait as long
			wakes = slices.DeleteFunc(wakes, func(w wakeUp) bool { return w.addr == to.addr })
		}
	}
}

// push tries to send one datagram, and reports whether it did.
func push(addr string, message []byte) bool {
	network, to, _ := strings.Cut(addr, ":")
	if !strings.HasPrefix(to, "@holdfast-") && !strings.HasPrefix(to, "127.0.0.1:") {
		return false // never send to another host, whatever the file contains
	}
	conn, err := net.Dial(network, to)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err = conn.Write(message)
	return err == nil
}

// writePush encodes a push: the number of identities, the identities, and the name.
func writePush(name string, ids []store.ID) []byte {
	message := []byte{byte(len(ids))}
	for _, id := range ids {
		message = append(message, id[:]...)
	}
	return append(message, name...)
}

func readPush(message []byte) (woken []wake.Key) {
	const size = len(store.ID{})
	if len(message) == 0 || len(message) < 1+int(message[0])*size {
		return nil // not a message of this package
	}
	ids, name := message[1:1+int(message[0])*size], string(message[1+int(message[0])*size:])
	for id := range slices.Chunk(ids, size) {
		woken = append(woken, wake.Key{Name: name, ID: store.ID(id)})
	}
	return woken
}

// Wait blocks until a queued identity should ask again; see [store.Store]. It returns nil at once if the
// identity was not queued through this handle.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	return s.pushes.waits.Wait(ctx, wake.Key{Name: name, ID: id}, s.life.Closing.Done(), s.life.ErrClosed)
}

// listenLoopback listens on a loopback port, for systems without abstract Unix sockets.
func listenLoopback() (net.PacketConn, string, error) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	return conn, "udp4:" + conn.LocalAddr().String(), nil
}
