// Package store is the contract between the core of Holdfast and the servers that keep locks.
//
// Programs that use locks need not import this package: package holdfast has aliases for the
// types that they need. Authors of stores implement [Store], call [Register] for their URL scheme,
// and run the conformance suite of package storetest.
//
// The work is divided strictly. The core queues goroutines, retries, renews, keeps deadlines and
// cleans up. A store translates one call into one attempt at its server, and starts no goroutine per
// grant or per waiter. It may repeat a message that certainly had no effect, for example because
// another client was faster or because a row was locked, as long as the call has time. It never
// repeats an Acquire, a Renew or a Release that may have been executed.
//
// All ages and remaining times are durations measured by the store's clock, never points in
// time. A client whose clock is wrong therefore reads them correctly.
package store

import (
	"context"
	"time"
)

// A Store keeps locks on a server. Its methods are safe for concurrent use.
//
// Every call returns soon after its context ends. The outcome of a call that fails with an error
// that matches none of this package is unknown: the server may or may not have acted.
type Store interface {
	// Acquire makes one attempt to take req.Name under the identity req.ID.
	//
	// The request is granted if the current holders admit it (see [Usage]) and no earlier request
	// is queued. The order is strict: a request that would fit still waits behind an earlier one
	// that does not. Otherwise it is refused: Answer.Refusal is set and the error is nil.
	//
	// A granted token is greater than req.Floor and every token granted before on that name. A
	// repeated Acquire under the identity of a live grant returns the same grant: its newest block
	// of tokens, whatever req.Floor is, and the TTL starts again.
	//
	// If req.Queue is set, a refused request joins the end of the queue. A repeated Acquire under
	// the same identity keeps its place and is its heartbeat: a waiter that does not ask for longer
	// than Capabilities.Heartbeat is dropped. If req.Queue is not set, a refusal leaves nothing.
	//
	// A store may grant a queued request before it asks again, when its turn comes. Such a grant
	// lasts no longer than the heartbeat, because the waiter may be dead. The next Acquire
	// returns that grant with its remaining time, counted from a time before it was granted.
	//
	// Acquire returns ErrInvalid if the name is held with another limit or in a mode that cannot be
	// combined with this one (see [Mixes]). A store may also compare it with the waiters.
	Acquire(ctx context.Context, req Request) (Answer, error)

	// Wait blocks until a queued identity should ask again, and then returns nil: when its turn may
	// have come, when the name was closed as Done (for every waiter), or when it was closed as
	// Cooling (for the next waiter in line). If such a change happened after the last refusal of
	// that identity, Wait returns at once, so that no change between the two calls is missed. Wait
	// may return early for no reason, and the core also asks again after Refusal.Again.
	//
	// Wait returns the context's error when ctx ends, and any other error when the store can
	// no longer notify the waiter, for example after the loss of a session or connection.
	Wait(ctx context.Context, name string, id ID) error

	// Leave removes an identity from the queue and releases its grant if there is one: it
	// undoes an Acquire whose reply was lost. It wakes the waiters that can now be granted.
	// It returns nil if there is nothing to undo.
	Leave(ctx context.Context, name string, id ID) error

	// Renew extends grants. It returns one outcome per grant, in the order of the argument. It never
	// revives or creates a grant, even if it arrives after a release.
	//
	// A renewal that fails is Unknown, with an error of its own, and does not affect the others. The
	// error is ErrInvalid if the renewal changes the mode, except from Exclusive to Shared. If all
	// renewals fail, Renew may return an error instead.
	Renew(ctx context.Context, grants []Renewal) ([]Renewed, error)

	// Release ends a grant, or replaces it by a kept record, which keeps the name closed for a
	// time (see [Keep]). It wakes the waiters that can now be granted.
	//
	// Release returns ErrNotHeld if there is no such grant, and ErrInvalid if keep.State is
	// Done and the grant is not exclusive.
	Release(ctx context.Context, name string, id ID, keep Keep) error

	// List returns one page of the names that have holders or waiters, without expired grants and
	// dropped waiters. A name that changes between two pages may be listed twice.
	List(ctx context.Context, q Query) (Page, error)

	// Break ends the grant or the kept record (see [Keep]) with that identity, and no other, by
	// force. It returns ErrNotHeld if that identity no longer holds the name.
	Break(ctx context.Context, name string, id ID) error

	// Capabilities returns what this store supports. The result is constant.
	Capabilities() Capabilities

	// Close frees the resources that the store itself opened. Grants stay until they are released
	// or their TTL is over. Calls that are blocked in Wait end, and later calls fail with
	// ErrClosed. A second Close does nothing. Close takes about two seconds at most, also if the
	// servers do not answer.
	Close() error
}

// A Request is a request for one grant.
type Request struct {
	Name   string
	ID     ID
	Mode   Mode
	Weight int           // number of permits; 1 in the other modes
	Limit  int           // total number of permits; 0 in the other modes
	TTL    time.Duration // how long the grant lives without a renewal
	Tokens int           // how many consecutive tokens to reserve, at least 1; a store may reserve fewer
	Floor  int64         // granted tokens must be greater
	Queue  bool          // on a refusal, join the queue or keep the place in it
	Owner  string        // human-readable owner
	Meta   string        // human-readable reason
}

// An Answer is the outcome of an Acquire. It is a grant unless Refusal is set.
type Answer struct {
	Token   int64         // first of the reserved tokens
	Tokens  int           // how many tokens are reserved, at least 1
	TTL     time.Duration // as granted, counted from this call; may differ from Request.TTL
	Waiters int           // how many other requests are queued for the name
	Refusal *Refusal
}

// Granted reports whether the request was granted.
func (a Answer) Granted() bool { return a.Refusal == nil }

// A Refusal says why a request was not granted and when to ask again.
type Refusal struct {
	Holders []Holder      // holders that exclude the request, possibly only the first MaxHolders; empty if only earlier waiters do
	Place   int           // place in the queue, 1 is next; 0 if not queued
	Waiters int           // how many other requests are queued
	Again   time.Duration // ask again after at most this time, even without a wake-up
}

// State distinguishes a live grant from a kept record, which keeps a name closed.
type State uint8

const (
	Held    State = iota // a live grant
	Done                 // closed: the work of this name is done (see Keep)
	Cooling              // closed: in cool-down after a release (see Keep)
)

// String returns "held", "done" or "cooling".
func (s State) String() string { return word(s, "unknown", "held", "done", "cooling") }

// Keep says what a Release leaves behind. The zero Keep leaves nothing.
//
// Otherwise a kept record takes the place of the grant. It has the grant's identity, mode and
// weight, and excludes the requests that the grant excluded. It cannot be renewed or released;
// it ends after For, or by Break. Only an exclusive grant can be kept as Done.
type Keep struct {
	State State // Done or Cooling
	For   time.Duration
}

// A Renewal is a request to extend one grant.
type Renewal struct {
	Name   string
	ID     ID
	TTL    time.Duration // counted from this call
	Mode   Mode          // the new mode: unchanged, or Shared to downgrade from Exclusive
	Tokens int           // if not 0, reserve a further block of tokens, unless other requests are queued and will get the name next
	Floor  int64         // tokens granted later on this name must be greater
}

// Status is the outcome of one renewal.
type Status uint8

const (
	Unknown Status = iota // the grant may or may not have been extended
	Extended
	Gone // this identity no longer holds the name
)

// Renewed is the outcome of one Renewal.
type Renewed struct {
	Status Status
	Err    error         // why the status is Unknown, or why an extended grant has kept its mode; may be nil
	TTL    time.Duration // as granted
	Token  int64         // first token of the new block
	Tokens int           // length of the new block; 0 if none was requested or other requests are queued
}

// A Query selects the names that List returns.
type Query struct {
	Name   string // only this name, if not empty
	Prefix string // otherwise, names that start with this prefix
	Cursor string // Page.Next of the previous page; empty for the first
	Limit  int    // approximate number of names to return; 0 lets the store choose
}

// A Page is one part of a listing.
type Page struct {
	Locks []Lock
	Next  string // cursor of the next page; empty after the last
}

// A Lock describes one name with its holders and its queue.
type Lock struct {
	Name    string
	Limit   int // of a semaphore; 0 in the other modes
	Holders []Holder
	Waiters []Waiter // in order, the next one first
}

// A Holder describes a live grant or a kept record (see [Keep]), when the store read it.
type Holder struct {
	ID     ID     // Break takes it
	Owner  string // who holds the name, as set by its client
	Meta   string // the text of the option Meta
	Mode   Mode
	Weight int           // how many permits it holds
	Token  int64         // first token of the newest block; after hand-overs the current token may be higher
	State  State         // held, or closed: done or cooling
	Age    time.Duration // since the name was granted, or closed
	Left   time.Duration // until it expires without a renewal
}

// A Waiter describes a queued request.
type Waiter struct {
	ID     ID
	Owner  string
	Meta   string
	Mode   Mode
	Weight int           // how many permits it waits for
	Age    time.Duration // since it joined the queue, at the time when the store read it
}
