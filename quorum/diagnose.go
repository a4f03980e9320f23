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
		"a node does not answer: the quorum tolerates fewer further failures; without a majority nothing is granted or renewed",
		"start the node's server; see whether it can be reached from this host")

	serverCheck = diagnosis.New("quorum.same-server", store.LevelFailure,
		"two nodes are one server: a majority of nodes is not a majority of servers, and both nodes fail with that server",
		"give every node a server of its own, and each server one address in the URL")

	restartedCheck = diagnosis.New("quorum.restarted", store.LevelWarning,
		"the server restarted lately and may have lost grants; its votes do not count until the restart delay has passed, so the quorum tolerates fewer failures",
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
	if err := s.life.EnterCall(ctx); err != nil {
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
	spare := fmt.Sprintf("%d nodes: %d may fail", len(s.nodes), len(s.nodes)-s.majority)
	fewer := fmt.Sprintf(", the same number as with %d nodes", len(s.nodes)-1)
	findings := []store.Finding{nodesCheck.Finding(len(s.nodes)%2 == 0, spare, fewer)}
	var ahead []time.Duration // how far the clocks are ahead of the clock of the quorum
	for i, n := range s.nodes {
		of := []store.Finding{answersCheck.OK("the node answers")}
		switch {
		case errs[i] != nil:
			of[0] = answersCheck.Bad("%v", errs[i])
		case n.restarter != nil:
			of = append(of, n.serverFindings()...)
			if n.server.offset != 0 {
				ahead = append(ahead, n.server.offset)
			}
		}
		findings = append(findings, diagnosis.On(n.name, append(of, inner[i]...))...)
	}
	if slices.ContainsFunc(s.nodes, func(n *node) bool { return n.restarter != nil }) {
		findings = append(findings, s.delayFinding(ttl))
	}
	limit := fmt.Sprintf("a call to a node may take %v, the TTL is %v", s.opts.Timeout, ttl)
	slow := s.opts.Timeout > ttl/3 // after a renewal that timed out, there would be no time for another one
	findings = append(findings, timeoutCheck.Finding(slow, limit, ""))
	if len(ahead) > 1 {
		d := slices.Max(ahead) - slices.Min(ahead)
		differ := fmt.Sprintf("the clocks of %d nodes differ by up to %v", len(ahead), d.Round(time.Millisecond))
		findings = append(findings, clocksCheck.Finding(d > ttl/10, differ, fmt.Sprintf(", more than a tenth of the TTL of %v", ttl)))
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

// serverFindings returns findings about the server of a node that has just answered.
func (n *node) serverFindings() []store.Finding {
	server := serverCheck.OK("no other node has this server")
	if twin := n.twin(); twin != nil {
		server = serverCheck.Bad("it is the same server as node %s", twin.name)
	}
	uptime, delay := n.quorum.now()-n.server.born, n.quorum.restartDelay()
	restarted := restartedCheck.OK("its server has been up for %v", uptime.Round(time.Second))
	if !isOld(uptime, delay) {
		restarted = restartedCheck.Bad("its server started %v ago: excluded for another %v", uptime.Round(time.Second), (delay - uptime).Round(time.Second))
	}
	return []store.Finding{server, restarted}
}

func (s *Store) delayFinding(ttl time.Duration) store.Finding {
	delay := s.restartDelay()
	if delay < 0 {
		return delayCheck.Bad("restart=off: a node counts right after its restart")
	}
	found := fmt.Sprintf("a node counts %v after its restart, the TTL is %v", delay, ttl)
	return delayCheck.Finding(delay < ttlAtNodes(min(ttl, store.MaxTime)), found, ", and clocks drift")
}
