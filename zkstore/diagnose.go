package zkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

var _ store.Diagnoser = (*Store)(nil)

// Diagnose checks whether the servers are set up safely for locks with that TTL: see [store.Diagnoser]. It sends the
// four-letter commands srvr, mntr and conf to every server of the URL, and begins a short session at each.
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) []store.Finding {
	if s.life.Closing.Err() != nil {
		return []store.Finding{rightsCheck.Unknown(s.life.ErrClosed)}
	}
	e := &ensemble{store: s, ctx: ctx}
	e.servers, e.asked = s.wire.Servers()
	e.root, e.rootErr = e.get(wire.Exists(s.root, false))
	if e.rootErr != nil {
		e.failure = s.explain(e.rootErr) // all requests that need a session would time out
	}
	e.ephemeralErr = e.tryEphemeral()
	config, err := e.get(wire.Get("/zookeeper/config", false))
	e.members, e.membersErr = voters(string(config.Data)), err
	findings := diagnosis.Run("", e, ensembleProbes)
	members := make([][]store.Finding, len(e.servers))
	var wg sync.WaitGroup
	for i, addr := range e.servers {
		wg.Go(func() { // servers that hang must not use up the time for the others
			m := &member{ensemble: e, addr: addr, replies: make(map[string]string), errs: make(map[string]error)}
			for _, word := range words {
				m.replies[word], m.errs[word] = m.ask(word)
			}
			members[i] = diagnosis.Run(addr, m, memberProbes)
		})
	}
	wg.Wait()
	findings = append(findings, slices.Concat(members...)...)
	identity := diagnosis.Identify("node %s, created by change %#x", s.root, e.root.Stat.Czxid)
	if e.rootErr != nil {
		identity = diagnosis.Identity.Unknown(e.rootErr)
	}
	return append(findings, identity, s.clockFinding(ttl))
}

// clockFinding compares the clock of the leader, at the last write of this store, with that of this host.
func (s *Store) clockFinding(ttl time.Duration) store.Finding {
	s.mu.Lock()
	last := s.clock
	s.mu.Unlock()
	if last.local.IsZero() {
		return diagnosis.ClockUnknown(errors.New("a server reports its clock only with a write, and this store has written nothing yet"))
	}
	const plusMinus = 100 * time.Millisecond // because a write takes some time
	return diagnosis.ClockAt(ttl, time.UnixMilli(last.server).Sub(last.local), plusMinus)
}

// words are the four-letter commands that Diagnose sends.
var words = []string{"srvr", "mntr", "conf"}

// An ensemble holds the results for all servers together.
type ensemble struct {
	store      *Store
	ctx        context.Context
	servers    []string      // of the URL
	asked      time.Duration // timeout of the session
	root       wire.Result
	rootErr    error
	members    int // number of voting members; 0 for a standalone server
	membersErr error

	ephemeralErr error // of an attempt to create an ephemeral node
	failure      error // the error of all further checks
}

func (e *ensemble) get(op wire.Op) (wire.Result, error) {
	if e.failure != nil {
		return wire.Result{}, e.failure
	}
	ctx, cancel := context.WithTimeout(e.ctx, bounded.CallTimeout)
	defer cancel()
	call := &wire.Call{Op: op}
	if err := e.store.wire.Do(ctx, call); err != nil {
		return wire.Result{}, err
	}
	return call.Result, nil
}

// voters counts the servers of the configuration that vote.
func voters(config string) (n int) {
	for line := range strings.Lines(config) {
		if strings.HasPrefix(line, "server.") && !strings.Contains(line, ":observer") {
			n++
		}
	}
	return n
}

// A member is one server.
type member struct {
	*ensemble
	addr    string
	replies map[string]string
	errs    map[string]error
}

func (m *member) ask(word string) (string, error) {
	ctx, cancel := context.WithTimeout(m.ctx, bounded.CallTimeout)
	defer cancel()
	reply, err := m.store.wire.Word(ctx, m.addr, word)
	if err == nil && (reply == "" || strings.Contains(reply, "is not in the whitelist")) {
		err = &diagnosis.Denied{
			Right: "4lw.commands.whitelist=" + strings.Join(words, ",") + " in zoo.cfg",
			Err:   fmt.Errorf("the server does not reply to the command %s", word),
		}
	}
	return reply, err
}

// field returns a value of a reply. Each line of a reply has a name, a separator and a value.
func (m *member) field(word, name, separator string) (string, error) {
	if err := m.errs[word]; err != nil {
		return "", err
	}
	for line := range strings.Lines(m.replies[word]) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok && key == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("the reply to %s has no %s", word, name)
}

const fewConnections = 60 // a limit of connections per address that is too low for a host with many programs

var rightsCheck = diagnosis.New("zookeeper.rights", store.LevelFailure,
	"the user may not create and delete nodes below the root of the locks, so no lock can be taken",
	"give user and password in the URL; setAcl ROOT to that user with all rights (cdrwa)")

var ensembleProbes = []diagnosis.Probe[*ensemble]{
	{Check: rightsCheck, Look: func(e *ensemble) (bool, string, error) {
		switch e.ephemeralErr {
		case wire.ErrNoAuth, wire.ErrInvalidACL, wire.ErrAuthFailed:
			return true, fmt.Sprintf("access to %s is denied", e.store.root), nil
		case wire.ErrLocalSession, wire.ErrSessionExpired: // see the next check
			return false, "", diagnosis.ErrNotApplicable
		}
		return false, fmt.Sprintf("the user may create and delete nodes below %s", e.store.root), e.ephemeralErr
	}},
	diagnosis.NewProbe("zookeeper.local-sessions", store.LevelFailure,
		"a session that only one server knows cannot have ephemeral nodes, which locks need, so no lock can be taken",
		"localSessionsUpgradingEnabled=true, or localSessionsEnabled=false",
		func(e *ensemble) (bool, string, error) {
			switch e.ephemeralErr {
			case wire.ErrLocalSession, wire.ErrSessionExpired:
				return true, "a new session is local and is not upgraded", nil
			case wire.ErrNoAuth, wire.ErrInvalidACL, wire.ErrAuthFailed: // see the check before
				return false, "", diagnosis.ErrNotApplicable
			}
			return false, "a new session can have ephemeral nodes", e.ephemeralErr
		}),
	diagnosis.NewProbe("zookeeper.session", store.LevelWarning,
		"the servers grant another timeout than requested: a TTL is at most four fifths of it, and the locks of a crashed process last that long",
		"ask for a time from 2 to 20 times tickTime with session= in the URL, or change minSessionTimeout and maxSessionTimeout",
		func(e *ensemble) (bool, string, error) {
			granted := time.Duration(e.store.timeout.Load())
			return granted != e.asked, fmt.Sprintf("asked for a session of %v, got %v", e.asked, granted), nil
		}),
	diagnosis.NewProbe("zookeeper.members", store.LevelWarning,
		"a standalone server is a single point of failure; an even number tolerates no more failures than one server fewer",
		"run an ensemble of three or five servers",
		func(e *ensemble) (bool, string, error) {
			if e.members == 0 {
				return true, "a standalone server", e.membersErr
			}
			return e.members%2 == 0 || e.members == 1, fmt.Sprintf("%d servers that vote", e.members), e.membersErr
		}),
	diagnosis.NewProbe("zookeeper.servers", store.LevelWarning,
		"a program that knows one server of many loses its session with it",
		"name all servers in the URL",
		func(e *ensemble) (bool, string, error) {
			return len(e.servers) == 1 && e.members > 1, fmt.Sprintf("%d of %d servers are named", len(e.servers), max(1, e.members)), e.membersErr
		}),
	diagnosis.NewProbe("zookeeper.acl", store.LevelWarning,
		"anyone who can reach the servers can read, forge and remove locks",
		"give user and password in the URL before the first use, so that the nodes belong to that user",
		func(e *ensemble) (bool, string, error) {
			result, err := e.get(wire.GetACL(e.store.root))
			for _, acl := range result.ACL {
				if acl.Scheme == "world" {
					return true, fmt.Sprintf("%s is open to %s:%s", e.store.root, acl.Scheme, acl.ID), err
				}
			}
			return false, fmt.Sprintf("%s has no rights for everybody", e.store.root), err
		}),
}

// tryEphemeral tries to create an ephemeral node, in a transaction that fails later and so changes nothing,
// not even the count of children by which servers decide whether to remove an empty container. It uses a
// session of its own, because servers end a local session that tries this.
func (e *ensemble) tryEphemeral() error {
	if e.failure != nil {
		return e.failure
	}
	path := e.store.root + "/doctor"
	const noVersion = 1 << 30
	err := e.alone(e.servers, &wire.Call{Op: wire.Multi(
		wire.Create(path, nil, e.store.acl, wire.Ephemeral),
		wire.Delete(path, noVersion))})
	if err == wire.ErrBadVersion { // error of the second part, so the first one was allowed
		return nil
	}
	return err
}

// alone makes calls in a session of its own.
func (e *ensemble) alone(servers []string, calls ...*wire.Call) error {
	own := e.store.wire.Alone(servers...)
	ctx, cancel := context.WithTimeout(e.ctx, bounded.CallTimeout)
	defer cancel()
	defer own.Close(ctx, true)
	err := own.Do(ctx, calls...)
	if ctx.Err() != nil {
		return cmp.Or(own.Failure(), err)
	}
	return err
}

var memberProbes = []diagnosis.Probe[*member]{
	diagnosis.NewProbe("zookeeper.ensemble", store.LevelFailure,
		"clients of different ensembles do not know of each other's locks: two clients hold one name",
		"name only servers of one ensemble in the URL, the same for all programs",
		func(m *member) (bool, string, error) {
			if m.rootErr != nil {
				return false, "", m.rootErr
			}
			call := &wire.Call{Op: wire.Exists(m.store.root, false)}
			err := m.alone([]string{m.addr}, &wire.Call{Op: wire.Sync(m.store.root)}, call)
			switch {
			case err == wire.ErrNoNode:
				return true, fmt.Sprintf("this server has no %s", m.store.root), nil
			case err == nil && call.Stat.Czxid != m.root.Stat.Czxid:
				return true, fmt.Sprintf("%s of this server is another node", m.store.root), nil
			}
			return false, "this server has the same nodes", err
		}),
	diagnosis.NewProbe("zookeeper.read-only", store.LevelFailure,
		"the server is cut off from the others and serves old data, so nothing is granted there",
		"see whether a majority of the servers is up and can reach each other",
		func(m *member) (bool, string, error) {
			if strings.Contains(m.replies["srvr"], "not currently serving requests") {
				return true, "the server does not serve: it has no leader", nil
			}
			mode, err := m.field("srvr", "Mode", ":")
			return mode == "read-only", "mode " + mode, err
		}),
	diagnosis.NewProbe("zookeeper.fsync", store.LevelFailure,
		"the server does not wait for its disk (forceSync=no): a crash of machines loses grants, and two clients hold one name",
		"start ZooKeeper without forceSync=no",
		func(m *member) (bool, string, error) {
			count, err := m.field("mntr", "zk_cnt_fsynctime", "\t")
			if n, _ := strconv.ParseFloat(count, 64); n == 0 {
				return true, "the server never synced its log", err
			}
			return false, fmt.Sprintf("the server synced its log %s times", count), err
		}),
	diagnosis.NewProbe("zookeeper.connections", store.LevelWarning,
		"a server refuses more connections than that from one address; each program has one, so many programs on one host or behind one address cannot connect",
		"maxClientCnxns=500 in zoo.cfg, or 0 for no limit",
		func(m *member) (bool, string, error) {
			text, err := m.field("conf", "maxClientCnxns", "=")
			n, err2 := strconv.Atoi(text)
			return n > 0 && n <= fewConnections, "maxClientCnxns " + text, cmp.Or(err, err2)
		}),
	diagnosis.NewProbe("zookeeper.commands", store.LevelNote,
		"settings that only these commands report are unknown",
		"4lw.commands.whitelist=srvr,mntr,conf in zoo.cfg",
		func(m *member) (bool, string, error) {
			hidden := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
				return !errors.As(m.errs[word], new(*diagnosis.Denied))
			})
			if len(hidden) > 0 {
				return true, "the server does not reply to " + strings.Join(hidden, ", "), nil
			}
			return false, "the server replies to " + strings.Join(words, ", "), cmp.Or(m.errs["srvr"], m.errs["mntr"], m.errs["conf"])
		}),
}
