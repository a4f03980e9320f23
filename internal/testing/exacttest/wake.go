package exacttest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A crowd has the requests of the holders and waiters of one name. They are called a, b, c and so
// on.
type crowd struct {
	*suite
	all map[string]store.Request
}

func (c *crowd) ask(who string)     { c.Helper(); c.acquire(c.all[who]) }
func (c *crowd) end(who string)     { c.Helper(); c.release(c.all[who]) }
func (c *crowd) done(who string)    { c.Helper(); c.keep(c.all[who], store.Done, time.Hour) }
func (c *crowd) cool(who string)    { c.Helper(); c.keep(c.all[who], store.Cooling, time.Hour) }
func (c *crowd) quit(who string)    { c.Helper(); c.leave(c.all[who]) }
func (c *crowd) down(who string)    { c.Helper(); c.stepDown(c.all[who]) }
func (c *crowd) expires(who string) { c.Helper(); c.expire(c.all[who]) }

// wakeCases list what the holders and waiters of a name do, and which waiters that wakes.
var wakeCases = []struct {
	name  string
	modes string // of a, b, c, …: the first ones hold the name, the others wait
	do    func(c *crowd)
	woken string
}{
	{"a release wakes the first waiter", "exclusive exclusive exclusive", func(c *crowd) { c.end("a") }, "b"},
	{"a release wakes the first of several readers", "exclusive shared shared exclusive", func(c *crowd) { c.end("a") }, "b"},
	{"a reader that is granted wakes the next reader", "exclusive shared shared exclusive", func(c *crowd) { c.end("a"); c.ask("b") }, "c"},
	{"a reader that is granted does not wake a writer", "exclusive shared exclusive", func(c *crowd) { c.end("a"); c.ask("b") }, ""},
	{"a writer is not woken by one of two readers", "shared shared exclusive", func(c *crowd) { c.end("a") }, ""},
	{"a writer is woken by the last reader", "shared shared exclusive", func(c *crowd) { c.end("b"); c.end("a") }, "c"},
	{"too few permits wake nobody", "3/5 2/5 4/5 1/5", func(c *crowd) { c.end("a") }, ""},
	{"enough permits wake the first waiter", "3/5 2/5 3/5 1/5", func(c *crowd) { c.end("a") }, "c"},
	{"a name that is done wakes all waiters", "exclusive exclusive shared exclusive", func(c *crowd) { c.done("a") }, "bcd"},
	{"a cooling name wakes the first waiter", "exclusive exclusive exclusive", func(c *crowd) { c.cool("a") }, "b"},
	{"a waiter that leaves a closed name wakes the next", "exclusive exclusive exclusive", func(c *crowd) { c.cool("a"); c.quit("b") }, "c"},
	{"a name that is no longer closed wakes nobody else", "exclusive exclusive exclusive exclusive", func(c *crowd) {
		c.keep(c.all["a"], store.Cooling, time.Second)
		c.Sleep(time.Second)
		c.ask("b")
		c.quit("c")
	}, ""},
	{"a Break wakes the first waiter", "exclusive exclusive exclusive", func(c *crowd) { c.check(c.Break(c.Context(), c.suite.name, c.all["a"].ID)) }, "b"},
	{"a holder that leaves wakes the first waiter", "exclusive exclusive exclusive", func(c *crowd) { c.quit("a") }, "b"},
	{"a waiter that leaves a held name wakes nobody", "exclusive exclusive exclusive", func(c *crowd) { c.quit("b") }, ""},
	{"a waiter that leaves on its turn wakes the next", "exclusive exclusive exclusive", func(c *crowd) { c.end("a"); c.quit("b") }, "c"},
	{"a large request that leaves wakes the small one behind it", "3/5 4/5 2/5 1/5", func(c *crowd) { c.quit("b") }, "c"},
	{"a downgrade wakes a reader", "exclusive shared shared", func(c *crowd) { c.down("a") }, "b"},
	{"a downgrade does not wake a writer", "exclusive exclusive shared", func(c *crowd) { c.down("a") }, ""},
	{"a renewal wakes nobody", "exclusive exclusive", func(c *crowd) { c.check(c.renew(c.all["a"], store.Exclusive, ttl)) }, ""},
	{"a waiter that asks again wakes nobody", "exclusive exclusive exclusive", func(c *crowd) { c.ask("c") }, ""},
	{"a refusal resets the wake-up", "exclusive exclusive exclusive", func(c *crowd) { c.done("a"); c.ask("b") }, "c"},
	{"a waiter that asks without Queue gives up its place", "shared exclusive shared", func(c *crowd) {
		b := c.all["b"]
		b.Queue = false
		if r := c.refused(b); r.Place != 0 || r.Waiters != 1 {
			c.Errorf("refusal %+v, want no place and one waiter", r)
		}
	}, "c"},
	{"an invalid request gives up its place", "exclusive 1/5 exclusive", func(c *crowd) {
		c.down("a") // permits cannot be combined with the shared mode
		c.invalid(c.all["b"])
		c.end("a")
	}, "c"},
	{"an expiry is noticed by a request", "exclusive exclusive exclusive", func(c *crowd) { c.expires("a"); c.refused(c.request("exclusive")) }, "b"},
	{"an expiry is noticed by a late release", "exclusive exclusive exclusive", func(c *crowd) {
		c.expires("a")
		c.is(c.Release(c.Context(), c.suite.name, c.all["a"].ID, store.Keep{}), store.ErrNotHeld)
	}, "b"},
	{"an expiry is noticed by another waiter", "exclusive exclusive exclusive", func(c *crowd) { c.expires("a"); c.ask("c") }, "b"},
}

func wakeTests() (tests []test) {
	for _, w := range wakeCases {
		tests = append(tests, test{w.name, func(s *suite) {
			c := &crowd{suite: s, all: map[string]store.Request{}}
			for i, mode := range strings.Fields(w.modes) {
				req := s.request(mode)
				req.Queue = true
				s.acquire(req)
				c.all[string(rune('a'+i))] = req
			}
			w.do(c)
			woken := ""
			for _, who := range slices.Sorted(maps.Keys(c.all)) {
				if s.Woken(s.name, c.all[who].ID) {
					woken += who
				}
			}
			if woken != w.woken {
				s.Errorf("woken %q, want %q", woken, w.woken)
			}
		}})
	}
	return tests
}
