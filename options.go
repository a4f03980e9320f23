package holdfast

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Defaults of the options.
const (
	// DefaultTTL is the TTL of a lock. It is longer than a garbage collection, a slow disk or
	// a restart of the server takes, and short enough to wait for after a crash.
	DefaultTTL = 30 * time.Second

	// DefaultHandoverLimit and DefaultHandoverSlice bound hand-overs while another process waits: a
	// busy process can use a lock many times in a row, and the other waits only a short time.
	DefaultHandoverLimit = 1024
	DefaultHandoverSlice = 50 * time.Millisecond
)

// An Option sets up a Client.
type Option func(*settings)

type settings struct {
	ttl           time.Duration
	prefix        string
	owner         string
	observer      Observer
	logger        *slog.Logger
	handoverLimit int
	handoverSlice time.Duration
}

func newSettings(opts []Option, caps *store.Capabilities) settings {
	s := settings{
		ttl:           DefaultTTL,
		handoverLimit: DefaultHandoverLimit,
		handoverSlice: DefaultHandoverSlice,
	}
	if caps.MaxTTL > 0 {
		s.ttl = min(s.ttl, caps.MaxTTL)
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&s)
		}
	}
	if s.owner == "" {
		s.owner = defaultOwner()
	}
	return s
}

func (s *settings) check(caps *store.Capabilities) error {
	if err := caps.CheckTTL(s.ttl); err != nil {
		return err
	}
	if s.prefix != "" {
		if err := store.CheckName(s.prefix); err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
		if len(s.prefix) >= store.MaxName {
			return fmt.Errorf("%w: prefix of %d bytes leaves no room for names: %d is the most for both", ErrInvalid, len(s.prefix), store.MaxName)
		}
	}
	if err := store.CheckText("owner", s.owner); err != nil {
		return err
	}
	if s.handoverLimit < 0 || s.handoverSlice < 0 {
		return fmt.Errorf("%w: WithHandover(%d, %v): want no negative value; a limit of 0 turns hand-over off", ErrInvalid, s.handoverLimit, s.handoverSlice)
	}
	return nil
}

// defaultOwner returns an owner that is different for each host, process and client.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || store.CheckText("host", host) != nil {
		host = "unknown-host"
	}
	id := store.NewID()
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + id.String()[:6]
}

// WithTTL sets how long a lock lives if its holder stops renewing it, and so how long others
// wait after a crash. The default is DefaultTTL, or the maximum of the store if that is shorter.
// It does not bound how long a lock can be held: leases renew themselves.
func WithTTL(ttl time.Duration) Option { return func(s *settings) { s.ttl = ttl } }

// WithPrefix puts a prefix, such as "shop:", in front of every name. The default is none.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithOwner sets the text that shows others who holds a lock. The default is host/process/random.
func WithOwner(owner string) Option { return func(s *settings) { s.owner = owner } }

// WithObserver calls o for every event of this client. The default is none.
func WithObserver(o Observer) Option { return func(s *settings) { s.observer = o } }

// WithLogger logs losses, failures and leaked leases as warnings, and all other events at
// debug level. It logs at most ten warnings of each kind in ten seconds, and with the next one the
// number of those that it left out. The default is no log.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// WithHandover bounds how long a process may pass a lock from one of its goroutines to
// the next while other processes wait: at most limit times and for one slice. A limit of
// 0 turns hand-over off. The defaults are DefaultHandoverLimit and DefaultHandoverSlice.
func WithHandover(limit int, slice time.Duration) Option {
	return func(s *settings) { s.handoverLimit, s.handoverSlice = limit, slice }
}

// A CallOption changes one call.
type CallOption func(*call)

// TTL replaces the client's TTL for this lock.
func TTL(ttl time.Duration) CallOption { return func(c *call) { c.Request.TTL = ttl } }

// Wait limits how long to wait for the lock; 0 means a single attempt. By default a call waits
// until its context ends. The limit does not affect how long the lock is held.
func Wait(limit time.Duration) CallOption {
	return func(c *call) { c.wait, c.waitSet, c.Try = limit, true, limit == 0 }
}

// Retry sets the strategy that decides when to retry after a failure of the store, and when to
// stop waiting for a holder. By default a call retries failures for about two seconds, or for
// five if the store does not answer at all, and waits for holders until the context or Wait ends
// it. A wake-up by the store between two attempts makes the call ask earlier.
func Retry(s Strategy) CallOption {
	return func(c *call) { c.retry, c.retrySet, c.retryErr = s, true, checkStrategy(s) }
}

// NoRenew turns off renewal: the lease ends after its TTL unless Renew is called.
func NoRenew() CallOption { return func(c *call) { c.noRenew = true } }

// MaxHold ends the lease when d has passed since the grant, even if renewed. The default is none.
func MaxHold(d time.Duration) CallOption {
	return func(c *call) { c.maxHold, c.maxHoldErr = d, store.CheckTime("MaxHold", d) }
}

// MinHold keeps the name closed until the time d has passed since it was acquired, even if it is
// unlocked earlier, for jobs that must not run twice in a row because clocks differ. If the holder
// dies or loses the lock, the name is free when the TTL is over. For a job that the clock starts on
// several hosts, use Once with the scheduled time in the name, which covers that case too.
func MinHold(d time.Duration) CallOption {
	return func(c *call) { c.minHold, c.minHoldErr = d, store.CheckTime("MinHold", d) }
}

// Reentrant allows a call to lock a name that its context already holds (see Lease.Context). The
// new lease shares the grant, its token and its TTL. Other options are checked, but have no
// effect. The last Unlock releases the grant. The call returns ErrWouldDeadlock if the grant does
// not cover it, for example if it asks for an exclusive lock and the context holds a shared one.
//
// Without this option, a call that waits returns ErrWouldDeadlock. A call that does not wait, such
// as TryLock, is answered as if another caller had made it.
func Reentrant() CallOption { return func(c *call) { c.reentrant = true } }

// Meta attaches a text to the lock, such as its purpose. Listings and a HeldError show it.
func Meta(text string) CallOption { return func(c *call) { c.Request.Meta = text } }

// Require makes the call fail with ErrUnsupported unless the store has these features.
func Require(f Features) CallOption { return func(c *call) { c.need |= f } }
