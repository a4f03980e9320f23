package faults

import (
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A trouble is a kind of fault that a hunt can cause.
type trouble struct {
	kind   string
	spares bool // see Fault
	weak   string
	long   time.Duration // how long the fault must last for the weakness
	after  time.Duration
	name   string // the name that it affects; all if empty

	client bool // affects a single child, and can be combined with another trouble
	others bool // with client: other children are affected too

	// do causes the fault for a time. I is the index of a child.
	do func(d time.Duration, i int)
}

// Bounds of a burst: the time between two faults, the time of a fault, and the time of all. The faults
// of a burst together are shorter than a third of the TTL, so it costs no lease that is renewed: L3.
const (
	burstGap   = 160 * time.Millisecond
	burstFault = 60 * time.Millisecond
	burstTime  = 4 * time.Second
	burstSum   = huntTTL / 3
)

// inflict causes a random fault, a burst of short ones, or two at once. It returns the fault from
// its begin to the end of the last one.
func (h *hunt) inflict() Fault {
	list := h.troubles
	if *huntFault != "" && *huntFault != "each" {
		list = slices.DeleteFunc(slices.Clone(list), func(tr trouble) bool { return tr.kind != *huntFault })
		if len(list) == 0 {
			h.t.Fatalf("no fault %q on this store", *huntFault)
		}
	}
	one := list[h.rand.IntN(len(list))]
	if *huntFault == "each" {
		one = list[h.round%len(list)]
	}
	h.round++
	i := h.rand.IntN(huntChildren)
	f := Fault{Kind: one.kind, Begin: now()}
	times := 1
	switch dice := h.rand.IntN(4); {
	case dice < 2, dice == 2 && *huntFault == "each":
		for left := burstSum; ; times++ {
			i = h.rand.IntN(huntChildren)
			took := h.cause(one, burstFault/10+time.Duration(h.rand.Int64N(int64(burstFault))), i)
			left -= max(took, burstFault/2) // a fault without a duration of its own counts as an average one
			if left < burstFault || now()-f.Begin > burstTime {
				break
			}
			time.Sleep(burstGap/4 + time.Duration(h.rand.Int64N(int64(burstGap))))
		}
	case dice == 2 && *huntFault == "":
		list := h.clientTroubles()
		two, d, j := list[h.rand.IntN(len(list))], h.duration(), (i+1)%huntChildren
		f.Kind += " and " + two.kind
		var other sync.WaitGroup
		other.Go(func() { h.cause(two, d, j) })
		h.cause(one, h.duration(), i)
		other.Wait()
	default:
		h.cause(one, h.duration(), i)
	}
	f.End = now()
	if one.client {
		f.Process = h.names[i]
	}
	h.fault = f.Kind
	h.faults += times
	h.of(f.Kind).Times += times
	h.t.Logf("%v of %v, %d faults: %s, %d in %v, after %.0f grants/s", (now() - h.began).Round(time.Second), *huntTime, h.faults,
		f.Kind, times, (f.End - f.Begin).Round(time.Millisecond), h.history.Rate(f.Begin-window/2, f.Begin))
	return f
}

// duration is the time of a single fault: less than a third of the TTL of kept locks, or more than
// the TTL of most locks.
func (h *hunt) duration() time.Duration {
	if h.rand.IntN(2) == 0 {
		return 50*time.Millisecond + time.Duration(h.rand.Int64N(int64(keptTTL/6)))
	}
	return huntTTL + time.Duration(h.rand.Int64N(int64(huntTTL)))
}

// cause causes a fault, and returns how long it lasted.
func (h *hunt) cause(tr trouble, d time.Duration, i int) time.Duration {
	f := Fault{Kind: tr.kind, Begin: now(), Spares: tr.spares, Weak: tr.weak, After: tr.after, Name: tr.name}
	if d < tr.long {
		f.Weak = ""
	}
	if tr.client && !tr.others {
		f.Process = h.names[i]
	}
	tr.do(d, i)
	f.End = now()
	h.history.AddFault(f)
	return f.End - f.Begin
}

// clientTroubles are the faults of a child and its connections.
func (h *hunt) clientTroubles() []trouble {
	list := []trouble{
		{kind: "client killed", client: true, do: func(_ time.Duration, i int) {
			h.history.End(h.names[i], now())
			h.children[i].kill()
			h.spawn(i)
		}},
		// A process that is stopped inside a transaction of SQLite blocks the others.
		{kind: "client stopped", client: true, others: h.bed.file != "", do: func(d time.Duration, i int) {
			h.children[i].signal(syscall.SIGSTOP)
			time.Sleep(d)
			h.children[i].signal(syscall.SIGCONT)
		}},
	}
	if len(h.wires[0]) == 0 {
		return list
	}
	faulty := func(kind string, spares bool, begin, end func(wires)) {
		list = append(list, trouble{kind: kind, client: true, spares: spares, do: func(d time.Duration, i int) {
			begin(h.wires[i])
			time.Sleep(d)
			end(h.wires[i])
		}})
	}
	faulty("network hangs", false, wires.hold, wires.heal)
	faulty("connections cut", false, wires.cut, wires.heal)
	faulty("slow network", true, func(w wires) { w.delay(20 * time.Millisecond) }, wires.heal)
	faulty("replies lost", false, func(w wires) { w.each(func(p *faultproxy.Proxy) { p.ToClient.Drop() }) }, wires.lose)
	return list
}

func (w wires) delay(by time.Duration) {
	w.each(func(p *faultproxy.Proxy) { p.ToClient.Delay(by) })
}

// serverTroubles are the faults of a single server.
func serverTroubles(p *servers.Process) []trouble {
	return []trouble{
		{kind: "server stopped", do: func(d time.Duration, _ int) { p.Stop(); time.Sleep(d); p.Continue() }},
		{kind: "server restarted", do: func(time.Duration, int) { p.Restart() }},
	}
}

// memberTroubles are the faults of one of several servers. Await waits until the rest serve
// without it, and again at the end.
func memberTroubles[S hangable](h *hunt, nodes []S, spares bool, restart func(k int), await func()) []trouble {
	list := []trouble{
		{kind: "member stopped", spares: spares, do: func(d time.Duration, i int) {
			p := nodes[i%len(nodes)]
			p.Stop()
			time.Sleep(d)
			p.Continue()
			await()
		}},
		{kind: "member restarted", spares: spares, do: func(_ time.Duration, i int) { restart(i % len(nodes)); await() }},
	}
	if len(h.wires[0]) == 0 {
		return list
	}
	return append(list, trouble{kind: "member slow", spares: spares, do: func(d time.Duration, i int) {
		k := i % len(nodes)
		for _, w := range h.wires {
			w[k : k+1].delay(20 * time.Millisecond)
		}
		time.Sleep(d)
		for _, w := range h.wires {
			w[k : k+1].heal()
		}
	}})
}

// clockTroubles are steps of the clock of servers. Weak is that of a Fault. It is empty if the store does
// not depend on that clock.
func (h *hunt) clockTroubles(weak string) []trouble {
	const step = 5 * time.Second
	change := func(by time.Duration) func(time.Duration, int) {
		return func(d time.Duration, _ int) {
			h.clock.shift(by)
			time.Sleep(d)
			h.clock.shift(0)
		}
	}
	return []trouble{
		{kind: "clock ahead", weak: weak, after: step + 2*keptTTL, spares: weak == "", do: change(step)},
		{kind: "clock behind", weak: weak, after: step + 2*keptTTL, spares: weak == "", do: change(-step)},
	}
}
