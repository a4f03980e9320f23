// Package diagnosis helps stores to implement [store.Diagnoser].
//
// A store has a table of probes: a [Check], which says what can go wrong and what to do about it, and a
// function that examines one server. A test compares the registered checks with the documentation.
package diagnosis

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

// A Check is one property that is checked. The meaning of its ID, which alerts use, never changes.
type Check struct {
	ID     string
	Level  store.Level // of a finding if there is a problem
	Risk   string      // what can go wrong because of the problem
	Remedy string      // what to set or to do
}

var registry struct {
	sync.Mutex
	checks []*Check
}

// New registers a check. It panics if a check with this ID exists.
func New(id string, level store.Level, risk, remedy string) *Check {
	registry.Lock()
	defer registry.Unlock()
	if slices.ContainsFunc(registry.checks, func(c *Check) bool { return c.ID == id }) {
		panic("holdfast: two checks are called " + id)
	}
	c := &Check{id, level, risk, remedy}
	registry.checks = append(registry.checks, c)
	return c
}

// All returns the registered checks, sorted by ID.
func All() []*Check {
	registry.Lock()
	defer registry.Unlock()
	return slices.SortedFunc(slices.Values(registry.checks), func(a, b *Check) int { return cmp.Compare(a.ID, b.ID) })
}

// OK returns the finding that there is no problem.
func (c *Check) OK(format string, args ...any) store.Finding {
	return store.Finding{ID: c.ID, Found: fmt.Sprintf(format, args...)}
}

// Bad returns the finding that there is a problem.
func (c *Check) Bad(format string, args ...any) store.Finding {
	return store.Finding{ID: c.ID, Level: c.Level, Found: fmt.Sprintf(format, args...), Risk: c.Risk, Remedy: c.Remedy}
}

// Finding describes what was found and, if it is bad, what is wrong with it.
func (c *Check) Finding(bad bool, found, wrong string) store.Finding {
	if bad {
		return c.Bad("%s%s", found, wrong)
	}
	return c.OK("%s", found)
}

// Unknown returns the finding that the check could not be made, because of a [Denied] if a right is missing.
func (c *Check) Unknown(err error) store.Finding {
	f := store.Finding{
		ID: c.ID, Level: store.LevelUnknown, Found: fmt.Sprintf("cannot be read: %v", err),
		Risk: "it is not known whether this holds: " + c.Risk, Remedy: "look at the server itself: " + c.Remedy,
	}
	if denied := new(Denied); errors.As(err, &denied) {
		f.Remedy = "allow " + denied.Right + " and run doctor again; or " + f.Remedy
	}
	return f
}

// A Denied is the error of a check that lacks the right to read something.
type Denied struct {
	Right string // what to allow
	Err   error
}

func (d *Denied) Error() string { return d.Err.Error() }
func (d *Denied) Unwrap() error { return d.Err }

// ErrNotApplicable is returned by a probe that examines a feature that the server does not have.
var ErrNotApplicable = errors.New("not applicable")

// A Probe examines a target, such as a server, for one check. Look describes what it found.
type Probe[T any] struct {
	*Check
	Look func(target T) (bad bool, found string, err error)
}

// NewProbe returns a probe for a check that it registers.
func NewProbe[T any](
	id string, level store.Level, risk, remedy string, look func(target T) (bad bool, found string, err error),
) Probe[T] {
	return Probe[T]{New(id, level, risk, remedy), look}
}

// Run examines a target with all probes. The findings have the given node.
func Run[T any](node string, target T, probes []Probe[T]) []store.Finding {
	var findings []store.Finding
	for _, p := range probes {
		bad, found, err := p.Look(target)
		f := p.Finding(bad, found, "")
		switch {
		case errors.Is(err, ErrNotApplicable):
			continue
		case err != nil:
			f = p.Unknown(err)
		}
		f.Node = node
		findings = append(findings, f)
	}
	return findings
}

// On sets the node of findings, for a store that is made of other stores, in front of their own nodes.
func On(node string, findings []store.Finding) []store.Finding {
	findings = slices.Clone(findings)
	for i, f := range findings {
		findings[i].Node = node
		if f.Node != "" && f.Node != node {
			findings[i].Node += ", " + f.Node
		}
	}
	return findings
}
