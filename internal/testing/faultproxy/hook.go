package faultproxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

const (
	hookWindow   = 64 << 10         // bytes of a connection that a hook sees: more than any request of a lock, in pieces
	executeLimit = 30 * time.Second // bounds the wait for a server to execute a request
)

// A hook waits for bytes that match.
type hook struct {
	match func([]byte) bool
	act   func()

	mu   sync.Mutex
	seen map[*pipe][]byte // since the hook was set; nil after it has fired
}

// When calls act once, as soon as match returns true for the last 64 KiB that arrived on one connection in
// this direction since the call of When. The bytes are forwarded after act has returned, so its faults apply
// to them. Calls of match and act are serialized. Act may do anything except close the proxy.
func (l *Link) When(match func(seen []byte) bool, act func()) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.hooks = append(l.hooks, &hook{match: match, act: act, seen: make(map[*pipe][]byte)})
}

// HoldRepliesAfter forwards the first request that matches as in [Link.When], closes the channel, and holds
// the replies of all connections. When ToClient.Waiting is above zero, the server has replied.
func (p *Proxy) HoldRepliesAfter(match func(request []byte) bool) <-chan struct{} {
	return p.onRequest(match, p.ToClient.Hold)
}

// DropRepliesAfter is like HoldRepliesAfter, but the replies are lost.
func (p *Proxy) DropRepliesAfter(match func(request []byte) bool) <-chan struct{} {
	return p.onRequest(match, p.ToClient.Drop)
}

// CutOn cuts the proxy when a request matches. That request does not reach the server.
func (p *Proxy) CutOn(match func(request []byte) bool) <-chan struct{} {
	return p.onRequest(match, p.Cut)
}

// Abandon makes a call and cancels its context when a request matches. The proxy holds all requests
// from then on. Before it cancels the context, it calls seen.
func (p *Proxy) Abandon(t testing.TB, match func(request []byte) bool, call func(context.Context) error, seen func()) {
	t.Helper()
	if err := cancelAfter(t, p.onRequest(match, p.ToServer.Hold), call, seen); !errors.Is(err, context.Canceled) {
		t.Fatalf("the call: %v, want the error of its context", err)
	}
}

// Lose makes a call whose request is executed, which changes what state returns, and whose reply is lost.
// It returns after the call has failed. All connections are cut then, and the proxy is healed.
func (p *Proxy) Lose(t testing.TB, match func(request []byte) bool, call func(context.Context) error, state func() (string, error)) {
	t.Helper()
	var before string
	var failed error
	seen := p.onRequest(match, func() {
		p.ToClient.Drop()
		before, failed = state()
	})
	err := cancelAfter(t, seen, call, func() {
		if failed != nil {
			t.Fatal(failed)
		}
		servers.Poll(t, executeLimit, func() error {
			now, err := state()
			if err == nil && now == before {
				err = errors.New("the server does not execute the request")
			}
			return err
		})
	})
	if err == nil {
		t.Fatal("the call worked though its reply was lost")
	}
	p.Cut()
	p.Heal()
}

// cancelAfter makes a call. When its request is seen, it calls then, and cancels the context of the call.
func cancelAfter(t testing.TB, seen <-chan struct{}, call func(context.Context) error, then func()) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- call(ctx) }()
	select {
	case <-seen:
	case err := <-failed:
		t.Fatalf("the call ended before its request was seen: %v", err)
	}
	then()
	cancel()
	return <-failed
}

func (p *Proxy) onRequest(match func([]byte) bool, act func()) <-chan struct{} {
	seen := make(chan struct{})
	p.ToServer.When(match, func() {
		act()
		close(seen)
	})
	return seen
}

// show passes bytes to the hooks of a link, which may use the proxy. So its mutex must not be held.
func (l *Link) show(p *pipe, data []byte) {
	l.proxy.mu.Lock()
	hooks := slices.Clone(l.hooks)
	l.proxy.mu.Unlock()
	for _, h := range hooks {
		h.show(p, data)
	}
}

// show passes bytes to the hook, unless it has fired.
func (h *hook) show(p *pipe, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		return
	}
	seen := append(h.seen[p], data...)
	seen = seen[max(0, len(seen)-hookWindow):]
	h.seen[p] = seen
	if h.match(seen) {
		h.seen = nil
		h.act()
	}
}
