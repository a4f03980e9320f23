package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	huntHands   = 3 // goroutines per client
	huntNames   = 8 // of exclusive locks
	huntKept    = 10
	huntPermits = 3

	// huntTTL is the TTL of most locks, and keptTTL that of locks that are held all the time. A busy
	// machine delays a process by much less than a third of keptTTL.
	huntTTL = 2 * time.Second
	keptTTL = 6 * time.Second

	// think is the longest pause of a goroutine between two calls.
	think = 40 * time.Millisecond
)

// A workload is one client of a lock service. Several goroutines share it.
type workload interface {
	// turn makes one random call and records its effects. It returns an error if the result is
	// one that the documentation does not allow.
	turn(ctx context.Context, h *hand) error
	// keep holds locks until ctx ends, and records losses.
	keep(ctx context.Context, h *hand)
	close() error
}

// newWorkload opens the client with an index.
func newWorkload(p *printer, o order, i int) (workload, error) {
	if o.Peer != "" {
		return newBorrower(p, o, i)
	}
	return newWorker(p, o, i)
}

// A hand is a goroutine with its own random numbers and its own connection to the resource.
type hand struct {
	*rand.Rand
	resource *shared
}

// hunt is a role of a child. Its clients work until its input ends.
func (p *printer) hunt(o order) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var all sync.WaitGroup
	failed := make(chan error, o.Clients)
	for i := range o.Clients {
		all.Go(func() { failed <- p.huntBy(ctx, o, i) })
	}
	all.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// huntBy runs the goroutines of one client.
func (p *printer) huntBy(ctx context.Context, o order, i int) error {
	w, err := newWorkload(p, o, i)
	for err != nil { // the server may be down
		if !pause(ctx, 100*time.Millisecond) {
			return nil
		}
		w, err = newWorkload(p, o, i)
	}
	var all sync.WaitGroup
	errs := make([]error, huntHands+1)
	for n := range errs {
		all.Go(func() {
			h := &hand{Rand: rand.New(rand.NewPCG(o.Seed, uint64(i*100+n)))}
			if h.resource, errs[n] = dialShared(o.Resource); errs[n] != nil {
				return
			}
			if n == huntHands {
				w.keep(ctx, h)
				return
			}
			for pause(ctx, rand.N(think)) {
				if err := w.turn(ctx, h); err != nil {
					p.print(report{Wrong: err.Error()})
				}
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, w.close())...)
}

// A worker is a client of Holdfast that is closed and opened again from time to time.
type worker struct {
	*printer
	order  order
	number int
	caps   holdfast.Capabilities

	mu     sync.Mutex
	client *holdfast.Client
	born   int
}

func newWorker(p *printer, o order, i int) (workload, error) {
	w := &worker{printer: p, order: o, number: i}
	if err := w.reopen(); err != nil {
		return nil, err
	}
	w.caps = w.client.Capabilities()
	return w, nil
}

// reopen opens a new client and closes the old one.
func (w *worker) reopen() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	w.mu.Lock()
	w.born++
	who := fmt.Sprintf("%s/%d.%d", w.order.Who, w.number, w.born)
	w.mu.Unlock()
	c, err := holdfast.Open(ctx, w.order.URL, holdfast.WithOwner(who), holdfast.WithTTL(w.order.TTL))
	if err != nil {
		return err
	}
	w.mu.Lock()
	old := w.client
	w.client = c
	w.mu.Unlock()
	return w.shut(old)
}

func (w *worker) shut(c *holdfast.Client) error {
	if c == nil {
		return nil
	}
	w.print(report{Ends: c.Owner(), At: now()})
	begin := time.Now()
	err := c.Close()
	if took := time.Since(begin); took > 15*time.Second { // documented: about 6 s
		return fmt.Errorf("close took %v", took)
	}
	if errors.Is(err, holdfast.ErrUnavailable) {
		err = nil // during a fault
	}
	return err
}

func (w *worker) close() error { return w.shut(w.client) }

func (w *worker) current() *holdfast.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.client
}

func (w *worker) has(f holdfast.Features) bool { return w.caps.Features.Has(f) }

// keep holds names of its own all the time.
func (w *worker) keep(ctx context.Context, _ *hand) {
	if w.number > 0 { // the others are closed from time to time
		return
	}
	kept := make([]*held, huntKept)
	for pause(ctx, 20*time.Millisecond) {
		for i, h := range kept {
			switch {
			case h == nil:
				name := fmt.Sprintf("k%s-%d", w.order.Who, i)
				if h, err := w.recorder().lock(ctx, w.current(), name, keptTTL); err == nil {
					kept[i] = h
				}
			case !h.believes():
				h.lost()
				kept[i] = nil
			}
		}
	}
	for _, h := range kept {
		if h != nil {
			h.unlock(context.Background())
		}
	}
}

// lost records that a lease has ended before it was unlocked.
func (h *held) lost() {
	if err := h.Err(); err == nil || errors.Is(err, holdfast.ErrLost) {
		h.change(func(hold *Hold) { hold.Lost = now() })
	}
}

// pause sleeps, and reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
