package etcdstore

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var _ store.Diagnoser = (*Store)(nil)

// Diagnose checks whether the servers are set up safely for locks with that TTL: see [store.Diagnoser]. It asks
// every endpoint for its status and its metrics. The user needs only the rights for locks.
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) []store.Finding {
	if err := s.life.EnterCall(ctx); err != nil {
		return []store.Finding{answersCheck.Unknown(err)}
	}
	defer s.life.Exit()
	c := &cluster{store: s, ctx: ctx, ttl: ttl}
	c.members, c.membersErr = ask(c, pb.NewClusterClient(s.client.ActiveConnection()).MemberList, &pb.MemberListRequest{})
	var endpoints []*endpointStatus
	var wg sync.WaitGroup
	for _, endpoint := range s.client.Endpoints() {
		e := &endpointStatus{cluster: c, addr: strings.TrimPrefix(strings.TrimPrefix(endpoint, "https://"), "http://"), secure: strings.HasPrefix(endpoint, "https://")}
		endpoints = append(endpoints, e)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, bounded.CallTimeout)
			defer cancel()
			e.StatusResponse, e.err = s.client.Status(ctx, endpoint)
		})
	}
	wg.Wait()
	if !slices.ContainsFunc(endpoints, func(e *endpointStatus) bool { return e.err == nil && e.Leader != 0 }) {
		c.failure = errors.New("there is no leader") // all requests that need a leader would time out
	}
	findings := diagnosis.Run("", c, clusterProbes)
	for _, e := range endpoints {
		if e.err != nil {
			findings = append(findings, diagnosis.On(e.addr, []store.Finding{answersCheck.Bad("%s", plain(e.err))})...)
			continue
		}
		e.metrics, e.metricsErr = e.readMetrics()
		findings = append(findings, diagnosis.Run(e.addr, e, endpointProbes)...)
	}
	identity := diagnosis.Identity.Unknown(c.membersErr)
	if c.membersErr == nil {
		identity = diagnosis.Identify("cluster %x, prefix %s", c.members.Header.ClusterId, s.config.prefix)
	}
	return append(findings, identity, diagnosis.ClockUnneeded("etcd does not tell its clock; no promise of this store depends on the time of day"))
}

// A cluster holds the results for all servers together.
type cluster struct {
	store      *Store
	ctx        context.Context
	ttl        time.Duration
	members    *pb.MemberListResponse
	membersErr error
	failure    error // of all further questions
}

// ask sends one request.
func ask[Q, R any](c *cluster, f func(context.Context, Q, ...grpc.CallOption) (R, error), req Q) (reply R, err error) {
	if c.failure != nil {
		return reply, c.failure
	}
	ctx, cancel := context.WithTimeout(c.ctx, bounded.CallTimeout)
	defer cancel()
	return f(ctx, req)
}

// An endpointStatus is one server.
type endpointStatus struct {
	*clientv3.StatusResponse
	*cluster
	addr       string
	secure     bool
	err        error
	metrics    map[string]float64
	metricsErr error
}

// readMetrics reads those metrics of a server that have no labels, in the format of Prometheus.
func (e *endpointStatus) readMetrics() (map[string]float64, error) {
	if e.secure {
		return nil, errors.New("the metrics are behind TLS, and a client passed to New does not reveal its settings; open the store by its URL")
	}
	scheme := "http://"
	transport := &http.Transport{DisableKeepAlives: true}
	if conns := e.store.config.conns; conns != nil && conns.files != nil {
		scheme, transport.TLSClientConfig = "https://", conns.files.Config()
	}
	ctx, cancel := context.WithTimeout(e.ctx, bounded.CallTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+e.addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &diagnosis.Denied{Right: "GET /metrics at the address for clients", Err: fmt.Errorf("GET /metrics: %s", response.Status)}
	}
	all := make(map[string]float64)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, text, ok := strings.Cut(lines.Text(), " "); ok {
			if value, err := strconv.ParseFloat(text, 64); err == nil {
				all[name] = value
			}
		}
	}
	return all, nil
}

// metric returns a number.
func (e *endpointStatus) metric(name string) (float64, error) {
	if e.metricsErr != nil {
		return 0, e.metricsErr
	}
	value, ok := e.metrics[name]
	if !ok {
		return 0, fmt.Errorf("the metrics have no %s", name)
	}
	return value, nil
}

const (
	mostMembers = 7
	mostSize    = 80       // percent of the quota
	muchSize    = 16 << 20 // size in bytes from which the ratio of allocated to used space is checked

	// manyRevisions is the number of revisions from which a missing compaction is reported.
	manyRevisions = 5000
)

// unsafeVersion reports whether a server of this version may lose or corrupt data when it is killed.
func unsafeVersion(version string) bool {
	return slices.Contains([]string{"3.5.0", "3.5.1", "3.5.2"}, version) || version == "2" ||
		strings.HasPrefix(version, "2.") || slices.ContainsFunc([]string{"3.0.", "3.1.", "3.2.", "3.3."}, func(old string) bool { return strings.HasPrefix(version, old) })
}

var answersCheck = diagnosis.New("etcd.answers", store.LevelWarning,
	"a server of the URL does not answer; with a majority gone nothing is granted or renewed",
	"start the server, or remove it from the cluster and from the URL")

var clusterProbes = []diagnosis.Probe[*cluster]{
	diagnosis.NewProbe("etcd.rights", store.LevelFailure,
		"the role of the user does not cover the keys of the locks, so no lock can be taken",
		"etcdctl role grant-permission --prefix ROLE readwrite PREFIX/",
		(*cluster).lacksRights),
	diagnosis.NewProbe("etcd.members", store.LevelWarning,
		"one member is a single point of failure; an even number tolerates no more failures than one member fewer; more than seven make every write slow",
		"run three or five members",
		func(c *cluster) (bool, string, error) {
			n := c.voters()
			return n < 2 || n%2 == 0 || n > mostMembers, fmt.Sprintf("%d voting members", n), c.membersErr
		}),
	diagnosis.NewProbe("etcd.endpoints", store.LevelWarning,
		"a program that knows one server of many fails with it",
		"name all servers in the URL",
		func(c *cluster) (bool, string, error) {
			given, members := len(c.store.client.Endpoints()), c.voters()
			return given < 2 && members > 1, fmt.Sprintf("%d of %d members are named", given, members), c.membersErr
		}),
	diagnosis.NewProbe("etcd.ttl", store.LevelWarning,
		"a server grants no lease shorter than 1.5 election timeouts, so a crashed holder keeps its lock for longer than the requested TTL",
		"use the TTL that is granted, or a shorter --election-timeout",
		func(c *cluster) (bool, string, error) {
			asked := whole(c.ttl)
			granted, err := c.tryLease(asked)
			return granted > asked, fmt.Sprintf("a TTL of %d s is granted as %d s", asked, granted), err
		}),
	diagnosis.NewProbe("etcd.compaction", store.LevelWarning,
		"each write leaves a revision behind; without compaction the database fills up, and then refuses all writes",
		"--auto-compaction-mode=periodic --auto-compaction-retention=5m",
		(*cluster).neverCompacted),
}

// voters returns how many members vote, or 0 if that is not known.
func (c *cluster) voters() (n int) {
	for _, m := range c.members.GetMembers() {
		if !m.IsLearner {
			n++
		}
	}
	return n
}

// tryLease returns the TTL that is granted to a lease. The lease is revoked at once.
func (c *cluster) tryLease(seconds int64) (granted int64, err error) {
	lease, err := ask(c, c.store.leases.LeaseGrant, &pb.LeaseGrantRequest{TTL: seconds})
	if err != nil {
		return 0, err
	}
	_, err = ask(c, c.store.leases.LeaseRevoke, &pb.LeaseRevokeRequest{ID: lease.ID})
	return lease.TTL, err
}

// neverCompacted reports whether the first revision still exists.
func (c *cluster) neverCompacted() (bool, string, error) {
	key := []byte(c.store.keys.floor)
	now, err := ask(c, c.store.kv.Range, &pb.RangeRequest{Key: key})
	if err != nil {
		return false, "", err
	}
	revisions := now.Header.Revision
	if revisions < manyRevisions {
		return false, fmt.Sprintf("only %d revisions, none of which needs to be compacted yet", revisions), nil
	}
	_, err = ask(c, c.store.kv.Range, &pb.RangeRequest{Key: key, Revision: 1})
	if rpctypes.Error(err) == rpctypes.ErrCompacted {
		return false, fmt.Sprintf("%d revisions, the oldest were compacted", revisions), nil
	}
	return true, fmt.Sprintf("%d revisions, none was ever compacted", revisions), err
}

// lacksRights reports whether the user lacks rights. It makes a transaction whose condition is
// never true: the server checks the rights for all operations that the transaction could make.
func (c *cluster) lacksRights() (bool, string, error) {
	key, all := c.store.keys.floor, c.store.config.prefix+"/"
	_, err := ask(c, c.store.kv.Txn, &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(key, -1)},
		Success: []*pb.RequestOp{get(all, clientv3.GetPrefixRangeEnd(all)), put(key, nil, 0)},
	})
	if rpctypes.Error(err) == rpctypes.ErrPermissionDenied {
		return true, fmt.Sprintf("the user may not read and write all keys that begin with %s/", c.store.config.prefix), nil
	}
	return false, fmt.Sprintf("the user may read and write all keys that begin with %s/", c.store.config.prefix), err
}

var endpointProbes = []diagnosis.Probe[*endpointStatus]{
	{Check: answersCheck, Look: func(*endpointStatus) (bool, string, error) { return false, "the server answers", nil }},
	diagnosis.NewProbe("etcd.version", store.LevelFailure,
		"versions 3.5.0 to 3.5.2 can corrupt their data when they are killed, and versions before 3.4 get no corrections",
		"update to the newest release of 3.5 or 3.6",
		func(e *endpointStatus) (bool, string, error) {
			return unsafeVersion(e.Version), "version " + e.Version, nil
		}),
	diagnosis.NewProbe("etcd.leader", store.LevelFailure,
		"without a leader nothing is granted or renewed, and leases are lost",
		"bring a majority of the members back; etcdctl endpoint status",
		func(e *endpointStatus) (bool, string, error) {
			return e.Leader == 0, cmp.Or(map[bool]string{true: "no leader"}[e.Leader == 0], fmt.Sprintf("the leader is %x", e.Leader)), nil
		}),
	diagnosis.NewProbe("etcd.learner", store.LevelFailure,
		"a learner refuses almost all requests",
		"etcdctl member promote, or leave it out of the URL",
		func(e *endpointStatus) (bool, string, error) {
			return e.IsLearner, map[bool]string{true: "this member is a learner", false: "this member votes"}[e.IsLearner], nil
		}),
	diagnosis.NewProbe("etcd.alarm", store.LevelFailure,
		"with an alarm NOSPACE the cluster refuses writes, so nothing is granted; CORRUPT means that members disagree about the data",
		"NOSPACE: compact, defragment, then etcdctl alarm disarm; CORRUPT: replace the damaged member",
		func(e *endpointStatus) (bool, string, error) {
			var alarms []string
			for _, text := range e.Errors {
				if strings.Contains(text, "alarm") {
					alarms = append(alarms, strings.TrimSpace(text))
				}
			}
			return len(alarms) > 0, cmp.Or(strings.Join(alarms, ", "), "no alarm"), nil
		}),
	diagnosis.NewProbe("etcd.size", store.LevelWarning,
		"when the database reaches its quota the cluster refuses all writes",
		"compact and defragment; raise --quota-backend-bytes",
		func(e *endpointStatus) (bool, string, error) {
			quota, err := float64(e.DbSizeQuota), error(nil)
			if quota == 0 { // before 3.6
				quota, err = e.metric("etcd_server_quota_backend_bytes")
			}
			percent := float64(e.DbSize) * 100 / quota
			return percent > mostSize, fmt.Sprintf("%s of %s, %.0f %% of the quota", mebibytes(e.DbSize), mebibytes(int64(quota)), percent), err
		}),
	diagnosis.NewProbe("etcd.fragmentation", store.LevelWarning,
		"most of the database file is unused but counts for the quota",
		"etcdctl defrag, one member after the other",
		func(e *endpointStatus) (bool, string, error) {
			return e.DbSize > muchSize && e.DbSizeInUse < e.DbSize/2,
				fmt.Sprintf("%s allocated, %s in use", mebibytes(e.DbSize), mebibytes(e.DbSizeInUse)), nil
		}),
	diagnosis.NewProbe("etcd.fsync", store.LevelFailure,
		"the server does not wait for its disk (--unsafe-no-fsync): a crash of the machine loses grants, and two clients hold one name",
		"start etcd without --unsafe-no-fsync",
		(*endpointStatus).doesNotSync),
}

// doesNotSync reports whether the server does not sync its log for a write. A follower may sync a
// moment later, so doesNotSync makes several writes.
func (e *endpointStatus) doesNotSync() (bool, string, error) {
	const name = "etcd_disk_wal_fsync_duration_seconds_count"
	before, err := e.metric(name)
	if err != nil {
		return false, "", err
	}
	for range 5 {
		if _, err := e.tryLease(whole(e.ttl)); err != nil {
			return false, "", err
		}
		e.metrics, e.metricsErr = e.readMetrics()
		if now, err := e.metric(name); err != nil || now > before {
			return false, "the server syncs its log for each write", err
		}
	}
	return true, "the server does not sync its log for a write", nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
