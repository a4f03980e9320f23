package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

const (
	// A lock is held for quiet plus up to quietMore, so that the waiter is queued before the hand-off.
	quiet     = 4 * time.Millisecond
	quietMore = 2 * time.Millisecond

	roundTrip = "round trip"
	passed    = "passed" // the name of the lock
)

// handOff measures the time from the release in one process to the grant in another, and round trips.
func (b *bench) handOff(s *system) {
	var turns []turn
	add := func(p peer, once func(ctx context.Context) time.Duration) {
		n := b.handoffs
		if p.poll > 0 {
			n = (n + 19) / 20 // polling takes much longer
		}
		turns = append(turns, turn{p.name, func() []figure {
			times := make([]float64, n)
			for i := range times {
				times[i] = float64(once(b.ctx).Nanoseconds()) / 1000
			}
			return []figure{{"p50", "µs", median(times)}, {"p99", "µs", quantile(times, 0.99)}}
		}, p.foreign()})
	}
	if s.trip != nil {
		call, end := s.trip(b.addr(s))
		defer end()
		add(peer{name: roundTrip, limit: true}, func(ctx context.Context) time.Duration {
			// The machine is idle before a hand-off, and needs time to wake up.
			time.Sleep(quiet + rand.N(quietMore))
			begin := time.Now()
			must.OK(call(ctx))
			return time.Since(begin)
		})
	}
	for _, p := range b.waiting(s) {
		own := b.open(s, p)
		defer own.close()
		other := b.startTaker(s, p)
		defer other.end()
		add(p, func(ctx context.Context) time.Duration { return pass(ctx, p, own, other) })
	}
	work := s.work("hand-off between processes")
	b.measure(work, 1, turns)
	b.ratio(work, us+": p50", roundTrip+": p50", "")
	b.ratio(work, us+": p99", roundTrip+": p99", "")
}

// pass passes a lock to another process, and returns how long that takes.
func pass(ctx context.Context, p peer, own *locker, other *taker) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	h := must.Get(own.lock(ctx, passed))
	fmt.Fprintln(other.in, "take")
	other.hear("asks")
	// For peers that poll, the release happens at a random time between two attempts.
	time.Sleep(quiet + rand.N(p.poll+quietMore))
	begin := time.Now()
	must.OK(h.Unlock(ctx))
	nanos := must.Get(strconv.ParseInt(other.hear("has"), 10, 64))
	other.hear("released")
	return time.Unix(0, nanos).Sub(begin)
}

// takerVariable makes this program a taker, whose arguments are the system, the peer and the address.
const takerVariable = "HOLDFAST_BENCH_TAKER"

// A taker is a child process that takes a lock on each line of its input.
type taker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (b *bench) startTaker(s *system, p peer) *taker {
	cmd := exec.CommandContext(b.ctx, must.Get(os.Executable()), s.name, p.name, b.addr(s))
	cmd.Env = append(os.Environ(), takerVariable+"=1")
	cmd.Stderr = os.Stderr
	in, out := must.Get(cmd.StdinPipe()), must.Get(cmd.StdoutPipe())
	must.OK(cmd.Start())
	return &taker{cmd, in, bufio.NewScanner(out)}
}

// hear waits for the next line, whose first word must be word, and returns the rest of the line.
func (t *taker) hear(word string) string {
	if !t.out.Scan() {
		must.Fail("the other process ended before it said %q", word)
	}
	rest, found := strings.CutPrefix(t.out.Text(), word)
	if !found {
		must.Fail("the other process said %q instead of %q", t.out.Text(), word)
	}
	return strings.TrimSpace(rest)
}

func (t *taker) end() {
	t.in.Close()
	timer := time.AfterFunc(hangs, func() { t.cmd.Process.Kill() })
	defer timer.Stop()
	t.cmd.Wait()
}

func takerMain() {
	s := systems[slices.IndexFunc(systems, func(s *system) bool { return s.name == os.Args[1] })]
	p := s.peer(os.Args[2])
	must.Main("bench: taker of "+p.name, func() { take(p, os.Args[3]) })
	os.Exit(0)
}

// take prints the time at which it got the lock.
func take(p peer, addr string) {
	l := p.open(addr)
	defer l.close()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("asks")
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		h := must.Get(l.lock(ctx, passed))
		fmt.Println("has", time.Now().UnixNano())
		must.OK(h.Unlock(context.Background()))
		cancel() // for some peers this ends the lock
		fmt.Println("released")
	}
}
