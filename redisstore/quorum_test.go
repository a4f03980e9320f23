package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// quorumURL returns the URL of a quorum whose nodes vote right after their start.
func quorumURL(nodes []*servers.Redis) string {
	return "quorum+redis://" + quorumHosts(nodes) + "?restart=off&timeout=5s"
}

func quorumHosts(nodes []*servers.Redis) string {
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, n.Addr())
	}
	return strings.Join(hosts, ",")
}

func openQuick3(t testing.TB, url string) store.Store {
	t.Helper()
	u, err := store.ParseURL(url)
	must(t, err)
	s, err := openQuorumWith(context.Background(), u, rediscore.Config{Heartbeat: time.Second})
	must(t, err)
	return s
}

// Package quorum runs the suite on other numbers of nodes.
func TestConformanceOfAQuorum(t *testing.T) {
	// The servers keep their data in memory, because servers that write to one disk delay
	// each other. None is restarted here.
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{InMemory: true})
	url := quorumURL(nodes)
	var handles []store.Store
	for _, n := range nodes {
		handle, err := store.Open(context.Background(), "redis://"+n.Addr())
		must(t, err)
		defer handle.Close()
		// With a context that can end, the client library starts goroutines, which the suite counts.
		must(t, errOf(handle.List(t.Context(), store.Query{Name: "n"})))
		handles = append(handles, handle)
	}
	storetest.Run(t, storetest.Harness{
		Open:     func(t testing.TB) store.Store { return &suites.Settled{Store: openQuick3(t, url), Nodes: handles} },
		Residue:  func(t testing.TB) []string { return redistest.Residue(t, nodes...) },
		TTL:      2 * time.Second,
		Parallel: 6, // a call is several calls
	})
}

func TestQuorumRejectsBadURLs(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 2, servers.RedisOptions{})
	node, alias := nodes[0], "localhost:"+strconv.Itoa(nodes[1].Port)
	for url, want := range map[string]string{
		"quorum+redis://a":                                           "at least 3",
		"quorum+redis://a,b":                                         "at least 3",
		"quorum+redis://a,b,c?timeout=x":                             "timeout",
		"quorum+redis://a,b,c?restart=-1s":                           "restart",
		"quorum+redis://a,b,c?restart=off&restart=30s":               `"restart" is given 2 times`,
		"quorum+redis://a,b,c?nonsense=1":                            "nonsense",
		"quorum+redis://a,b,c?ca=file":                               "known are timeout, restart",
		"quorum+redis://a,b,c?replicas=1":                            `"replicas": known are timeout, restart`,
		"quorum+redis://a,b,b":                                       "every node must be a server of its own",
		"quorum+redis://" + strings.Repeat(node.Addr()+",", 2) + "b": "every node must be a server of its own",
		"quorum+redis://" + quorumHosts(nodes) + "," + alias:         "same server",
	} {
		s, err := store.Open(suites.Limited(t), url)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ErrInvalid with %q", url, err, want)
		}
	}
}

func TestQuorumNeedsAMajorityOfReachableNodes(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{Password: "secret"})
	url := strings.Replace(quorumURL(nodes), "//", "//:secret@", 1)
	nodes[2].Kill()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatalf("one of three nodes is down: %v", err)
	}
	defer s.Close()
	req := suites.Request("n")
	suites.Granted(t, s, req)
	suites.Release(t, s, req)
	nodes[1].Kill()
	req = suites.Request("n")
	_, err = s.Acquire(t.Context(), req)
	var failed *quorum.NodesError
	if !errors.As(err, &failed) || failed.Nodes[nodes[1].Addr()] == nil || failed.Nodes[nodes[2].Addr()] == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("two of three nodes are down: %v, want an error that names both", err)
	}
	if s, err := store.Open(t.Context(), url); err == nil || errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "1 of 3 nodes answered, 2 are needed") {
		if err == nil {
			s.Close()
		}
		t.Errorf("open with two of three nodes down: %v", err)
	}
	// The store connects to the node that was down at first as soon as it runs.
	nodes[2].Restart()
	suites.Eventually(t, "not granted though a majority is back", func() bool {
		a, err := s.Acquire(t.Context(), req)
		return err == nil && a.Granted()
	})
}

// Clients tell each other their lists through the servers. With {a,b,c} and {b,c,d}, one could have the
// votes of a and b, and the other one those of c and d.
func TestQuorumRefusesAListThatDoesNotFitThatOfAnotherClient(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 4, servers.RedisOptions{InMemory: true})
	s := openQuick3(t, quorumURL(nodes[:3]))
	defer s.Close()
	suites.Granted(t, s, suites.Request("n"))
	replaced, err := store.Open(t.Context(), quorumURL(nodes[1:]))
	if err == nil {
		replaced.Close()
	}
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "its list is ") || !strings.Contains(err.Error(), nodes[0].Addr()) {
		t.Errorf("a list with a node replaced: %v, want ErrInvalid with the other list", err)
	}
	added := openQuick3(t, quorumURL(nodes))
	defer added.Close()
	suites.Refused(t, added, suites.Request("n")) // a list with a node added
}

func TestNodeThatRestartedDoesNotCountBeforeTheDelay(t *testing.T) {
	const delay = 4 * time.Second
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{InMemory: true})
	open := func(restart string) store.Store {
		s, err := store.Open(t.Context(), "quorum+redis://"+quorumHosts(nodes)+"?timeout=2s&restart="+restart)
		must(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	holder, careful, careless := open("off"), open(delay.String()), open("off")
	request := func(name string) store.Request {
		req := suites.Request(name)
		req.TTL = delay
		return req
	}
	// granted repeats a request until it is granted.
	granted := func(s store.Store, name string) store.Answer {
		t.Helper()
		req := request(name)
		var answer store.Answer
		servers.Poll(t, 30*time.Second, func() (err error) {
			if answer, err = s.Acquire(t.Context(), req); err == nil && !answer.Granted() {
				err = fmt.Errorf("refused: %+v", answer.Refusal)
			}
			return err
		})
		return answer
	}
	granted(careful, "all nodes count")
	a := granted(holder, "n")
	hasNotVoted := func(n *servers.Redis) bool { return n.Must("EXISTS", rediscore.Prefix+"lock:n") == int64(0) }
	suites.Eventually(t, "not all nodes have voted", func() bool { return !slices.ContainsFunc(nodes, hasNotVoted) })
	// The holder has the votes of nodes 0 and 1 only, as if node 2 had been cut off.
	nodes[2].Must("DEL", rediscore.Prefix+"lock:n")
	nodes[1].Kill()
	restarted := time.Now()
	nodes[1].Restart() // without its data
	req := request("n")
	if b, err := careful.Acquire(t.Context(), req); err == nil && b.Granted() {
		t.Fatal("a node that has lost its data voted for a second holder")
	}
	careful.Leave(t.Context(), "n", req.ID)
	// Without the delay, the second client gets the lock.
	if b := granted(careless, "n"); b.Token <= a.Token {
		t.Errorf("token %d after %d", b.Token, a.Token)
	}
	// The grants of the node count again after the delay, and not earlier.
	nodes[0].Kill()
	granted(careful, "other")
	if d := time.Since(restarted); d < delay {
		t.Errorf("the node counts %v after its restart, want %v", d, delay)
	}
}

// INFO reports the uptime in whole seconds, counted from the second in which the server started.
func TestUptimeOfANodeIsNeverTooLong(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 1, servers.RedisOptions{InMemory: true})
	u, err := store.ParseURL("redis://" + quorumHosts(nodes))
	must(t, err)
	node := &quorumNode{url: u}
	t.Cleanup(func() { node.Close() })
	for range 2 {
		nodes[0].Kill()
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1900 * time.Millisecond))) // late in a second
		begin := time.Now()
		nodes[0].Restart()
		servers.Poll(t, 30*time.Second, func() error {
			server, err := node.Server(t.Context())
			if up := time.Since(begin); err == nil && server.Uptime > up {
				t.Errorf("uptime %v, it was started %v ago", server.Uptime, up)
			}
			if err == nil && server.Uptime == 0 {
				err = errors.New("it has just started")
			}
			return err
		})
	}
}

// A quorum need not undo what was never sent.
func TestErrorOfANodeWithoutAConnectionTellsThatNothingWasSent(t *testing.T) {
	loading := listen(t)
	go func() {
		for {
			c, err := loading.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for err == nil { // also for a request that has several commands
					if _, err = c.Read(make([]byte, 4096)); err == nil {
						_, err = io.WriteString(c, "-LOADING Redis is loading the dataset in memory\r\n")
					}
				}
			}()
		}
	}()
	silent := listen(t)
	locked := servers.StartRedis(t, servers.RedisOptions{Password: "PASSWORD"})
	for url, says := range map[string]string{
		"redis://" + loading.Addr().String():  "LOADING",
		"rediss://" + loading.Addr().String(): "TLS",
		"redis://" + silent.Addr().String():   "",
		"redis://" + locked.Addr():            "check the user",
		"redis://127.0.0.1:1":                 "refused",
	} {
		u, err := store.ParseURL(url)
		must(t, err)
		n := &quorumNode{url: u}
		for range 2 { // the second call fails because of the first one
			_, err = n.Acquire(t.Context(), suites.Request("n"))
			var dial *net.OpError
			if !errors.As(err, &dial) || dial.Op != "dial" || errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want the error of a dial that says %q", url, err, says)
			}
		}
		n.mu.Lock()
		var dial *net.OpError
		if _, err := n.Acquire(t.Context(), suites.Request("n")); !errors.As(err, &dial) || dial.Op != "dial" {
			t.Errorf("while another call connects: %v, want the error of a dial", err)
		}
		n.mu.Unlock()
	}
}

func TestOpeningAQuorumDoesNotWaitForANodeThatHangs(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{InMemory: true})
	nodes[1].Stop()
	defer nodes[1].Continue()
	begin := time.Now()
	s, err := store.Open(t.Context(), "quorum+redis://"+quorumHosts(nodes)+"?restart=off")
	must(t, err)
	s.Close()
	if took := time.Since(begin); took > 2500*time.Millisecond { // half a second if the machine is idle
		t.Errorf("Open and Close took %v", took)
	}
}
