package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var (
	nodesCheck = diagnosis.New("quorum.nodes", store.LevelWarning,
		"an even number of nodes tolerates no more failures than one node fewer, and each lock costs more",
		"add a node or remove one, in the URL of all programs")

	answersCheck = diagnosis.New("quorum.answers", store.LevelWarning,
		"a node does not answer: fewer further failures are survived; without a majority nothing is granted or renewed",
		"start the node's server; see whether it can be reached from this host")

	serverCheck = diagnosis.New("quorum.same-server", store.LevelFailure,
		"two nodes are one server: a majority of nodes is not a majority of servers, and both nodes fail with that server",
		"give every node a server of its own, and each server one address in the URL")

	restartedCheck = diagnosis.New("quorum.restarted", store.LevelWarning,
		"the server restarted lately and may have lost grants; its votes do not count until the restart delay is over, so fewer failures are survived",
		"wait, and restart one node at a time; a quorum whose servers were all started together grants nothing until then")

	delayCheck = diagnosis.New("quorum.restart-delay", store.LevelFailure,
		"a node that restarts without its data votes for a second holder while the lease of the first is valid",
		"restart= in the URL must be at least the largest TTL; leave restart=off to tests")

	timeoutCheck = diagnosis.New("quorum.timeout", store.LevelWarning,
		"a renewal that waits for a node that hangs uses up much of the TTL, and the lease is lost if it fails",
		"a shorter timeout= in the URL, or a longer TTL")

	clocksCheck = diagnosis.New("quorum.clocks", store.LevelWarning,
		"a node that loses its data starts its tokens from its clock: if that is behind the others by more than the restart delay, tokens may fall",
		"synchronize the clocks of all nodes with NTP")
)

// Diagnose checks the nodes, and whether they are a quorum that is safe for locks with that TTL:
// see [store.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) []store.Finding {
	if err := s.enter(ctx); err != nil {
		return []store.Finding{answersCheck.Unknown(err)}
	}
	defer s.life.Exit()
	_, errs := gatherAll(ctx, s, s.nodes, ask)
	inner := make([][]store.Finding, len(s.nodes))
	var wg sync.WaitGroup
	for i, n := range s.nodes {
		if d, ok := n.Store.(store.Diagnoser); ok && errs[i] == nil {
			wg.Go(func() { inner[i] = d.Diagnose(ctx, ttl) })
		}
	}
	wg.Wait()
	s.look(ctx) // the restart delay depends on the TTLs of other clients
	s.servers.Lock()
	defer s.servers.Unlock()
	findings := []store.Finding{s.nodesFinding()}
	var ahead []time.Duration
	restarters := 0
	for i, n := range s.nodes {
		of := []store.Finding{answersCheck.OK("the node answers")}
		if n.restarter != nil {
			restarters++
			of = append(of, n.serverFindings()...)
		}
		if errs[i] != nil {
			of = []store.Finding{answersCheck.Bad("%v", errs[i])}
		} else if n.server.offset != 0 {
			ahead = append(ahead, n.server.offset)
		}
		findings = append(findings, diagnosis.On(n.name, append(of, inner[i]...))...)
	}
	if restarters > 0 {
		findings = append(findings, s.delayFinding(ttl))
	}
	findings = append(findings, s.timeoutFinding(ttl))
	if len(ahead) > 1 {
		findings = append(findings, clocksFinding(ttl, ahead))
	}
	return findings
}

// ask returns an error if a node does not answer.
func ask(ctx context.Context, n *node) (struct{}, error) {
	if n.restarter != nil {
		return struct{}{}, n.verify(ctx)
	}
	_, err := n.List(ctx, store.Query{Name: "holdfast:doctor"}) // a name that is not in use
	return struct{}{}, err
}

// serverFindings returns findings about the server of a node that has just answered. The caller holds the
// mutex of the servers, like that of delayFinding.
func (n *node) serverFindings() []store.Finding {
	twin, uptime := n.twin(), n.quorum.now()-n.server.born
	server := serverCheck.OK("no other node has this server")
	if twin != nil {
		server = serverCheck.Bad("it is the same server as node %s", twin.name)
	}
	delay := n.quorum.restartDelay()
	restarted := restartedCheck.OK("its server has been up for %v", uptime.Round(time.Second))
	if !isOld(uptime, delay) {
		restarted = restartedCheck.Bad("its server started %v ago: excluded for another %v", uptime.Round(time.Second), (delay - uptime).Round(time.Second))
	}
	return []store.Finding{server, restarted}
}

func (s *Store) nodesFinding() store.Finding {
	n, spare := len(s.nodes), len(s.nodes)-s.majority
	if n%2 == 0 {
		return nodesCheck.Bad("%d nodes: %d may fail, the same number as with %d nodes", n, spare, n-1)
	}
	return nodesCheck.OK("%d nodes: %d may fail", n, spare)
}

func (s *Store) delayFinding(ttl time.Duration) store.Finding {
	delay := s.restartDelay()
	switch {
	case delay < 0:
		return delayCheck.Bad("restart=off: a node counts right after its restart")
	case delay < ttlAtNodes(min(ttl, store.MaxTime)):
		return delayCheck.Bad("a node counts %v after its restart, the TTL is %v, and clocks drift", delay, ttl)
	}
	return delayCheck.OK("a node counts %v after its restart, the TTL is %v", delay, ttl)
}

func (s *Store) timeoutFinding(ttl time.Duration) store.Finding {
	found := fmt.Sprintf("a call to a node may take %v, the TTL is %v", s.opts.Timeout, ttl)
	if s.opts.Timeout > ttl/3 { // after a renewal that timed out, there would be no time for another one
		return timeoutCheck.Bad("%s", found)
	}
	return timeoutCheck.OK("%s", found)
}

// clocksFinding compares the clocks of the nodes. Ahead is how far each clock is ahead of the
// clock of the quorum.
func clocksFinding(ttl time.Duration, ahead []time.Duration) store.Finding {
	d := slices.Max(ahead) - slices.Min(ahead)
	if d > ttl/10 {
		return clocksCheck.Bad("the clocks of %d nodes differ by up to %v, more than a tenth of the TTL of %v", len(ahead), d.Round(time.Millisecond), ttl)
	}
	return clocksCheck.OK("the clocks of %d nodes differ by up to %v", len(ahead), d.Round(time.Millisecond))
}
