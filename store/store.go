// Package store is the contract between Holdfast's core and the servers that keep locks.
//
// Users of Holdfast meet this package only for feature names (see [Features]) and for
// what a listing contains. Authors of stores implement [Store], call [Register] for
// their URL scheme, and run the suite of package storetest.
//
// The division of work is strict. The core queues goroutines, retries, renews, keeps
// deadlines and cleans up. A store translates one call into one attempt at its server:
// it does not retry, does not sleep and starts no goroutine per grant or per waiter.
//
// All ages and remaining times are durations on the store's clock, never points in
// time, so that a client with a wrong clock reads them correctly.
package store

import (
	"context"
	"time"
)

// A Store keeps locks on some server. Its methods may be called from many goroutines.
//
// Every call returns soon after its context ends. A call that fails with an error other
// than the ones of this package has an unknown outcome.
type Store interface {
	// Acquire makes one attempt to take req.Name under the identity req.ID.
	//
	// It grants if the name admits the request (see [Usage]) and nobody waits in front of
	// it. Order is strict: a request that would fit still waits behind an earlier one
	// that does not. Otherwise it refuses: Answer.Refusal is set and the error is nil.
	//
	// A granted token is greater than every token granted before on that name and greater
	// than req.Floor. The same identity asked again is the same grant: the answer carries
	// the tokens it has (the newest block, whatever the floor), and the TTL starts anew.
	//
	// With req.Queue a refused request joins the end of the queue. Asking again under
	// the same identity keeps the place and is the waiter's sign of life: a waiter that
	// does not ask for longer than Capabilities.Heartbeat is dropped. Without req.Queue
	// nothing is left behind by a refusal.
	//
	// A store may grant a queued request unasked when its turn comes, for no longer than the
	// heartbeat because the waiter may be dead. The next Acquire answers with that grant and
	// with what is left of its time, counted from before it was granted.
	//
	// ErrInvalid: the name is held, or waited for, with another limit or in a mode that does
	// not mix (see [Mixes]; a store need not look at the waiters).
	Acquire(ctx context.Context, req Request) (Answer, error)

	// Wait returns nil when it is worth asking again for a queued identity: its turn may
	// have come, or the name was closed as Done, which every waiter wants to know, or as
	// Cooling, which the next in line does. A change since that identity's last
	// refusal makes it return at once, so that nothing is lost in between. It may return
	// early without reason; the core asks again anyway after Refusal.Again.
	//
	// It returns the context's error when ctx ends, and any other error when the store
	// cannot tell any more (a lost session or connection).
	Wait(ctx context.Context, name string, id ID) error

	// Leave takes an identity out of the queue, and gives back the grant if there is one:
	// it undoes an Acquire whose answer nobody heard. It wakes whom that lets in.
	// It is nil if there is nothing to undo.
	Leave(ctx context.Context, name string, id ID) error

	// Renew extends grants, with an outcome for each in the order of the argument. An
	// error makes all of them unknown. It never revives or creates a grant, even if it
	// arrives after a release. ErrInvalid: a change of mode other than to step down.
	Renew(ctx context.Context, grants []Renewal) ([]Renewed, error)

	// Release ends a grant, or leaves the name closed for a time (see [Keep]), and wakes
	// whom that lets in. ErrNotHeld: no such grant. ErrInvalid: Done for a grant that is
	// not exclusive.
	Release(ctx context.Context, name string, id ID, keep Keep) error

	// List reads who holds and who waits, a page at a time. Only what is alive now is
	// listed. A name may be listed twice if it changes between two pages.
	List(ctx context.Context, q Query) (Page, error)

	// Break ends a grant or a closure by force: exactly the one that was seen, by its
	// identity. ErrNotHeld: that identity holds the name no longer.
	Break(ctx context.Context, name string, id ID) error

	// Capabilities tells what this store can do. It is constant.
	Capabilities() Capabilities

	// Close frees what the store itself opened; grants stay until they are released or
	// their TTL is over. Calls after it fail with ErrClosed, and waiting calls end. A second
	// Close does nothing.
	Close() error
}

// A Request asks for one grant.
type Request struct {
	Name   string
	ID     ID
	Mode   Mode
	Weight int           // permits wanted; 1 in the other modes
	Limit  int           // permits in all; 0 in the other modes
	TTL    time.Duration // how long the grant lives without a renewal
	Tokens int           // how many tokens in a row to reserve, at least 1; a store may give fewer
	Floor  int64         // tokens granted must be greater
	Queue  bool          // on refusal join the queue, or keep the place in it
	Owner  string        // who asks, for people to read
	Meta   string        // what for, for people to read
}

// An Answer is the outcome of an Acquire. It is a grant unless Refusal is set.
type Answer struct {
	Token   int64         // first of the reserved tokens
	Tokens  int           // how many were reserved, at least 1
	TTL     time.Duration // from this call on, as granted; may differ from the one asked for
	Waiters int           // how many others are queued for the name
	Refusal *Refusal
}

// Granted reports whether the request was granted.
func (a Answer) Granted() bool { return a.Refusal == nil }

// A Refusal says why a request was not granted and when to ask again.
type Refusal struct {
	Holders []Holder      // who is in the way; a store may cut the list at MaxHolders. Empty if only earlier waiters are
	Place   int           // place in the queue, 1 is next; 0 if not queued
	Waiters int           // how many others are queued
	Highest int64         // highest token this store knows of for the name
	Again   time.Duration // ask again within this, push or no push
}

// State is what a holder's record stands for.
type State uint8

const (
	Held    State = iota // a live grant
	Done                 // closed: the work of this name is done (see Keep)
	Cooling              // closed: released before its minimum hold was over (see Keep)
)

// String returns "held", "done" or "cooling".
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Done:
		return "done"
	case Cooling:
		return "cooling"
	}
	return "unknown"
}

// Keep says what a Release leaves behind. The zero Keep leaves nothing.
//
// A kept record takes the place of the grant: it has the grant's identity, mode and
// weight, refuses what the grant refused, cannot be renewed or released, and ends after
// For or by Break. Done is for exclusive grants only.
type Keep struct {
	State State // Done or Cooling
	For   time.Duration
}

// A Renewal asks to extend one grant.
type Renewal struct {
	Name   string
	ID     ID
	TTL    time.Duration // from now
	Mode   Mode          // the mode from now on: unchanged, or Shared to step down from Exclusive
	Tokens int           // if not 0, reserve a further block of tokens, unless others are queued: the name is theirs next
	Floor  int64         // tokens granted on this name from now on must be greater
}

// Status is the outcome of one renewal.
type Status uint8

const (
	Unknown Status = iota // not known whether it was extended
	Extended
	Gone // the store says that this identity holds the name no longer
)

// Renewed is the outcome of one Renewal.
type Renewed struct {
	Status Status
	Err    error         // why the status is Unknown; may be nil
	TTL    time.Duration // as granted
	Token  int64         // first of the further tokens
	Tokens int           // how many were reserved; 0 if none were asked for, or others are queued
}

// A Query selects what List reads.
type Query struct {
	Name   string // exactly this name, if not empty
	Prefix string // else the names that start with this
	Cursor string // Page.Next of the page before; empty for the first
	Limit  int    // about how many names to return; 0 for the store's choice
}

// A Page is a part of a listing.
type Page struct {
	Locks []Lock
	Next  string // cursor of the next page; empty after the last
}

// A Lock is one name with its holders and its queue.
type Lock struct {
	Name    string
	Limit   int // of a semaphore; 0 in the other modes
	Holders []Holder
	Waiters []Waiter // in order, the next one first
}

// A Holder is a live grant or a kept record.
type Holder struct {
	ID     ID
	Owner  string
	Meta   string
	Mode   Mode
	Weight int
	Token  int64 // first token of the newest block reserved
	State  State
	Age    time.Duration // since it was granted, or closed
	Left   time.Duration // until it ends without a renewal
}

// A Waiter is a queued request.
type Waiter struct {
	ID     ID
	Owner  string
	Meta   string
	Mode   Mode
	Weight int
	Age    time.Duration // since it joined the queue
}
