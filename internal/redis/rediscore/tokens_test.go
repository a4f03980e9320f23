package rediscore

import (
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// step is the precision with which quorum nodes read their clocks: see tokens.lua.
const step = 1 << 18

// A quorumNode is a server with a store that counts tokens as a node of a quorum.
type quorumNode struct {
	*servers.Redis
	*Store
}

func startQuorumNode(t *testing.T) quorumNode {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	return quorumNode{server, openAs(t, server.Addr(), "", "", Config{Counters: QuorumCounters})}
}

// clock returns the time of the server in µs.
func (n quorumNode) clock(t *testing.T) (micros int64) {
	t.Helper()
	var seconds, rest int64
	reply := n.Must("TIME").([]any)
	if _, err := fmt.Sscan(reply[0].(string)+" "+reply[1].(string), &seconds, &rest); err != nil {
		t.Fatal(err)
	}
	return seconds*1_000_000 + rest
}

func (n quorumNode) take(t *testing.T, req store.Request) store.Answer {
	t.Helper()
	answer, err := n.Acquire(t.Context(), req)
	must(t, err)
	return answer
}

func TestTheFirstTokenOfAQuorumNodeIsItsRoundedClock(t *testing.T) {
	n := startQuorumNode(t)
	for _, tokens := range []int{1, 100} {
		req := plain(fmt.Sprint("n", tokens))
		req.Tokens = tokens
		before := n.clock(t)
		answer := n.take(t, req)
		after := n.clock(t)
		if answer.Token%step != 0 || answer.Token < before-step || answer.Token > after || answer.Tokens != tokens {
			t.Errorf("%d tokens from %d, want %d tokens, from a multiple of %d between %d and %d", answer.Tokens, answer.Token, tokens, step, before-step, after)
		}
	}
}

// The counters of nodes are equal when all have had the same grants. Requests that only some of the
// nodes have refused must not make a difference.
func TestQuorumNodesWithTheSameGrantsChooseTheSameTokens(t *testing.T) {
	a, b := startQuorumNode(t), startQuorumNode(t)
	// All tokens are ahead of the clocks, so that the test does not depend on the time.
	floor := a.clock(t) + 10*60*1_000_000
	for i := range 100 {
		req := plain("n")
		req.Floor, req.Tokens = floor, 1+i%2*(i%7)
		at := a.take(t, req)
		for range i % 3 {
			other := plain("n")
			other.Floor = floor
			if a.take(t, other).Granted() {
				t.Fatal("granted twice")
			}
		}
		if bt := b.take(t, req); at.Token != bt.Token || at.Tokens != bt.Tokens || at.Token < floor+int64(i) {
			t.Fatalf("grant %d: %d tokens from %d, and %d tokens from %d", i, at.Tokens, at.Token, bt.Tokens, bt.Token)
		}
		for _, n := range []quorumNode{a, b} {
			suites.Release(t, n.Store, req)
		}
	}
}

// A batch has calls for several counters, which have floors of their own.
func TestABatchOfAQuorumNodeCountsEachNameByItsCounter(t *testing.T) {
	n := startQuorumNode(t)
	high := n.clock(t) + 10*60*1_000_000
	var calls []*plainCall
	for i := range 20 {
		name := fmt.Sprint("n", i)
		call := &plainCall{name: name, record: "P" + store.NewID().String() + "\t\t\t", ttl: 60_000_000_000, counter: n.counterOf(name)}
		if i == 7 {
			call.floor = high
		}
		calls = append(calls, call, &plainCall{name: name, record: "not there", counter: -1})
	}
	byCounter := make(map[int]int)
	n.sendPlain(t.Context(), calls, store.ID{})
	for _, c := range calls {
		switch token := number(c.value); {
		case c.err != nil:
			t.Fatal(c.err)
		case c.ttl == 0:
			if c.value != int64(0) {
				t.Errorf("%s: released %v records", c.name, c.value)
			}
		case c.counter == n.counterOf("n7"):
			if token <= high {
				t.Errorf("%s: token %d, want more than %d", c.name, token, high)
			}
		case token%step != int64(byCounter[c.counter]):
			t.Errorf("%s: token %d is not the next one of its counter", c.name, token)
		}
		if c.ttl > 0 {
			byCounter[c.counter]++
			if got := n.Must("LINDEX", n.lockKey(c.name), "0"); got != c.granted() {
				t.Errorf("%s: the server has %q, want %q", c.name, got, c.granted())
			}
		}
	}
}
