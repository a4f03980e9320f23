package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A claim is one identity that requests or holds a name, and the connection that it uses.
type claim struct {
	*conn
	req   store.Request
	ans   store.Answer  // the newest grant, with its newest block of tokens
	again time.Duration // the longest Again of a refusal
	alive bool          // may still be queued or granted on the server
	kept  bool          // its grant was replaced by a kept record
	asked time.Time     // when its newest attempt began
	late  bool          // it may have lost its place, because it did not ask for a heartbeat
}

func (c *conn) exclusive(name string) *claim { return c.claim(name, store.Exclusive, 1, 0) }
func (c *conn) shared(name string) *claim    { return c.claim(name, store.Shared, 1, 0) }
func (c *conn) permits(name string, weight, limit int) *claim {
	return c.claim(name, store.Permits, weight, limit)
}

func (c *conn) claim(name string, mode store.Mode, weight, limit int) *claim {
	k := c.newClaim(name, mode, weight, limit)
	c.s.claims = append(c.s.claims, k)
	return k
}

// newClaim returns a claim that the test itself has to undo. It may be called from any goroutine.
func (c *conn) newClaim(name string, mode store.Mode, weight, limit int) *claim {
	id := store.NewID()
	k := &claim{conn: c, req: store.Request{
		Name: name, ID: id, Mode: mode, Weight: weight, Limit: limit, TTL: c.s.long, Tokens: 1,
		Owner: "owner " + id.String()[:4], Meta: "meta " + id.String()[:4],
	}}
	if err := c.s.caps.Check(&k.req); err != nil {
		c.s.Helper()
		c.s.Fatalf("the suite makes a request that the core would reject: %v", err)
	}
	return k
}

// short sets a TTL that expires during the test.
func (k *claim) short() *claim {
	k.req.TTL = k.s.TTL
	return k
}

// try makes one attempt and checks the properties that every answer must have. Unlike the other
// methods it may be called from any goroutine, but not concurrently.
func (k *claim) try(ctx context.Context) (store.Answer, error) {
	k.alive = true
	begin := time.Now()
	ans, err := k.Acquire(ctx, k.req)
	k.late = k.late || !k.asked.IsZero() && time.Since(k.asked) > k.s.caps.Heartbeat
	k.asked = begin
	switch {
	case err != nil:
	case !ans.Granted():
		k.again = max(k.again, ans.Refusal.Again)
		if !k.req.Queue {
			k.alive = false
		}
	case k.ans.Token != 0 && (ans.Token != k.ans.Token || ans.Tokens != k.ans.Tokens):
		err = fmt.Errorf("repeated request: %d tokens from %d, had %d from %d", ans.Tokens, ans.Token, k.ans.Tokens, k.ans.Token)
	case ans.Tokens < 1 || k.ans.Token == 0 && ans.Tokens > k.req.Tokens:
		err = fmt.Errorf("granted %d tokens, asked for %d", ans.Tokens, k.req.Tokens)
	case k.ans.Token == 0 && ans.Token <= k.req.Floor || last(ans.Token, ans.Tokens) > store.MaxToken:
		err = fmt.Errorf("token %d to %d: want one from %d to 2^53-1", ans.Token, last(ans.Token, ans.Tokens), k.req.Floor+1)
	case ans.TTL <= 0:
		err = fmt.Errorf("granted for %v", ans.TTL)
	default:
		k.ans = ans
	}
	return ans, err
}

// attempt is try with the context of one call.
func (k *claim) attempt() (ans store.Answer, err error) {
	err = k.s.call(func(ctx context.Context) (err error) { ans, err = k.try(ctx); return err })
	return ans, err
}

func (k *claim) ask() store.Answer {
	k.s.Helper()
	ans, err := k.attempt()
	if err != nil {
		k.s.Fatalf("Acquire %q: %v", k.req.Name, err)
	}
	return ans
}

func (k *claim) granted() *claim {
	k.s.Helper()
	if ans := k.ask(); !ans.Granted() {
		k.s.Fatalf("Acquire %q: refused, want a grant: %s", k.req.Name, show(ans.Refusal))
	}
	return k
}

func (k *claim) refused() *store.Refusal {
	k.s.Helper()
	ans := k.ask()
	if ans.Granted() {
		k.s.Fatalf("Acquire: granted, want a refusal")
	}
	return ans.Refusal
}

// queued sets Queue, makes one attempt and expects that place in the queue, or any if it is 0.
func (k *claim) queued(place int) *claim {
	k.s.Helper()
	k.req.Queue = true
	r := k.refused()
	if k.s.caps.Features.Has(store.FeatureQueue) && place != 0 && r.Place != place {
		k.s.Fatalf("Acquire: place %d in the queue, want %d", r.Place, place)
	}
	return k
}

func show(r *store.Refusal) string {
	var b strings.Builder
	fmt.Fprintf(&b, "place %d, %d waiters, again %v", r.Place, r.Waiters, r.Again)
	for _, h := range r.Holders {
		fmt.Fprintf(&b, ", %s by %s (%s, %v left)", h.State, h.Owner, h.Mode, h.Left)
	}
	return b.String()
}

// within polls without Queue until the name is granted. It fails the test after the limit and a busy machine's delay.
func (k *claim) within(limit time.Duration) {
	k.s.Helper()
	if !k.s.eventually(limit+busy, func() bool { return k.ask().Granted() }) {
		k.s.Fatalf("not granted within %v", limit)
	}
}

func (k *claim) tryRelease(keep store.Keep) error {
	err := k.s.call(func(ctx context.Context) error { return k.Release(ctx, k.req.Name, k.req.ID, keep) })
	if err == nil {
		k.kept = keep != store.Keep{}
		k.alive = k.kept
	}
	return err
}

// expect fails the test unless a call returned that error, which may be nil.
func (k *claim) expect(call string, err, want error) {
	k.s.Helper()
	if !errors.Is(err, want) {
		k.s.Fatalf("%s: %v, want %v", call, err, want)
	}
}

func (k *claim) keep(keep store.Keep) {
	k.s.Helper()
	k.expect("Release", k.tryRelease(keep), nil)
}

func (k *claim) release() {
	k.s.Helper()
	k.keep(store.Keep{})
}

func (k *claim) leave() {
	k.s.Helper()
	k.expect("Leave", k.s.call(k.calls(nil)["Leave"]), nil)
}

// tryBreak breaks the grant on any connection.
func (k *claim) tryBreak(c *conn) error {
	return k.s.call(func(ctx context.Context) error { return c.Break(ctx, k.req.Name, k.req.ID) })
}

func (k *claim) renewal() store.Renewal {
	return store.Renewal{Name: k.req.Name, ID: k.req.ID, TTL: k.req.TTL, Mode: k.req.Mode}
}

// renew makes renewals in one call.
func (c *conn) renew(renewals ...store.Renewal) (out []store.Renewed, err error) {
	err = c.s.call(func(ctx context.Context) (err error) { out, err = c.Renew(ctx, renewals); return err })
	return out, err
}

// calls returns one call of each kind for the claim, under the identity that it has then, and an Acquire for another.
func (k *claim) calls(other *claim) map[string]func(ctx context.Context) error {
	calls := map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := other.try(ctx); return err },
		"Wait":    func(ctx context.Context) error { return k.Wait(ctx, k.req.Name, k.req.ID) },
		"Leave":   func(ctx context.Context) error { return k.Leave(ctx, k.req.Name, k.req.ID) },
		"Renew":   func(ctx context.Context) error { _, err := k.Renew(ctx, []store.Renewal{k.renewal()}); return err },
		"Release": func(ctx context.Context) error { return k.Release(ctx, k.req.Name, k.req.ID, store.Keep{}) },
	}
	if k.s.caps.Features.Has(store.FeatureList) {
		calls["List"] = func(ctx context.Context) error { _, err := k.List(ctx, store.Query{Name: k.req.Name}); return err }
		calls["Break"] = func(ctx context.Context) error { return k.Break(ctx, k.req.Name, k.req.ID) }
	}
	return calls
}

// renewed renews the claim, with a further block of tokens, and expects that outcome.
func (k *claim) renewed(want store.Status, tokens int) {
	k.s.Helper()
	r := k.renewal()
	r.Tokens = tokens
	out, err := k.renew(r)
	k.expect("Renew", err, nil)
	if len(out) != 1 || out[0].Status != want || want == store.Extended && out[0].TTL <= 0 {
		k.s.Fatalf("Renew: %+v, want one outcome with status %d", out, want)
	}
	if out[0].Tokens > 0 {
		k.ans.Token, k.ans.Tokens = out[0].Token, out[0].Tokens // the newest block
	}
}

func (k *claim) extended() {
	k.s.Helper()
	k.renewed(store.Extended, 0)
}

func (k *claim) last() int64 { return last(k.ans.Token, k.ans.Tokens) }

func last(token int64, tokens int) int64 { return token + int64(tokens) - 1 }

func (k *claim) above(token int64) {
	k.s.Helper()
	if k.ans.Token <= token {
		k.s.Fatalf("token %d, want one greater than %d", k.ans.Token, token)
	}
}

// is expects that a record is the grant of the claim.
func (k *claim) is(h store.Holder) {
	k.s.Helper()
	want := store.Holder{
		ID: k.req.ID, Owner: k.req.Owner, Meta: k.req.Meta, Mode: k.req.Mode,
		Weight: k.req.Weight, Token: k.ans.Token, State: store.Held, Age: h.Age, Left: h.Left,
	}
	if h != want {
		k.s.Fatalf("holder:\n got %+v\nwant %+v", h, want)
	}
}

// alone expects that a call returned the claim as the only holder.
func (k *claim) alone(call string, holders []store.Holder) {
	k.s.Helper()
	if len(holders) != 1 {
		k.s.Fatalf("%s: %d holders, want 1: %+v", call, len(holders), holders)
	}
	k.is(holders[0])
}

// drive asks, waits for a wake-up or for Again, and asks again, from any goroutine, as the core does.
func (k *claim) drive(ctx context.Context) error {
	k.req.Queue = true
	for {
		ans, err := k.try(ctx)
		if err != nil || ans.Granted() {
			return err
		}
		if ans.Refusal.Again <= 0 {
			return fmt.Errorf("refusal with Again %v", ans.Refusal.Again)
		}
		wait, cancel := context.WithTimeout(ctx, ans.Refusal.Again)
		err = k.Wait(wait, k.req.Name, k.req.ID)
		if err != nil && wait.Err() == nil {
			err = fmt.Errorf("call of Wait: %w", err)
		} else {
			err = ctx.Err()
		}
		cancel()
		if err != nil {
			return err
		}
	}
}

// served drives the claim until it is granted within the limit, and returns how long that took.
func (k *claim) served(limit time.Duration) time.Duration {
	k.s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := time.Now()
	if err := k.drive(ctx); err != nil {
		k.s.Fatalf("not served within %v: %v", limit, err)
	}
	return time.Since(start)
}

type wait struct {
	s      *suite
	cancel context.CancelFunc
	err    chan error
}

// wait calls Wait, and gives it some time to reach the server. Even if it has not, no push must be lost.
func (k *claim) wait() *wait { return k.waitFor(eternity) }

func (k *claim) waitFor(limit time.Duration) *wait {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	w := &wait{s: k.s, cancel: cancel, err: make(chan error, 1)}
	go func() { w.err <- k.Wait(ctx, k.req.Name, k.req.ID) }()
	k.s.cancels = append(k.s.cancels, cancel)
	time.Sleep(k.s.TTL / 50)
	return w
}

// ended returns the error of Wait, and fails the test if Wait does not return.
func (w *wait) ended() error {
	w.s.Helper()
	select {
	case err := <-w.err:
		w.cancel()
		return err
	case <-time.After(patience):
		w.s.Fatal("Wait does not return")
		return nil
	}
}

func (w *wait) woken() {
	w.s.Helper()
	if err := w.ended(); err != nil {
		w.s.Fatalf("Wait: %v, want nil", err)
	}
}
