package servers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

// EtcdOptions change a server without TLS and authentication. Data survives a Restart, but is not synced to disk.
type EtcdOptions struct {
	TLS      *Certificates // between clients and servers; clients must present a certificate
	Password string        // of the user root; authentication is on if set
	Args     []string      // further arguments

	// Via, if set, returns the address of a proxy through which the other members of a
	// cluster reach the server that listens on addr. By default they connect directly.
	Via func(addr string) string
}

// The election timeout is short, so that a test can wait for an election. Half a second is
// long enough for a busy machine, and allows leases of one second.
const (
	etcdHeartbeat = "50"
	etcdElection  = "500"
	etcdRequest   = 2 * time.Second // bounds one request of this package
)

// An Etcd is one etcd server.
type Etcd struct {
	*Process
	peer int // port for the other members of its cluster
	opts EtcdOptions
}

// An EtcdCluster is a cluster of etcd servers.
type EtcdCluster struct{ group[*Etcd] }

// StartEtcd starts a single etcd server and waits until it is ready.
func StartEtcd(t testing.TB, opts EtcdOptions) *Etcd {
	t.Helper()
	return StartEtcdCluster(t, 1, opts).Nodes[0]
}

// StartEtcdCluster starts n servers and waits until they have a leader.
func StartEtcdCluster(t testing.TB, n int, opts EtcdOptions) *EtcdCluster {
	t.Helper()
	c := &EtcdCluster{group[*Etcd]{make([]*Etcd, n), t}}
	members := make([]string, n)
	for i := range c.Nodes {
		node := &Etcd{Process: newProcess(t), peer: ports.Reserve(t), opts: opts}
		c.Nodes[i] = node
		members[i] = fmt.Sprintf("%s=http://%s", node.name(), node.advertised())
	}
	for _, node := range c.Nodes {
		node.configure(strings.Join(members, ","))
	}
	startAll(c.Nodes...)
	if opts.Password != "" {
		c.Nodes[0].EnableAuth(opts.Password)
	}
	return c
}

func (e *Etcd) name() string { return fmt.Sprint("etcd", e.Port) }

func (e *Etcd) url() string {
	if e.opts.TLS != nil {
		return "https://" + e.Addr()
	}
	return "http://" + e.Addr()
}

func (e *Etcd) advertised() string {
	addr := ports.Addr(e.peer)
	if e.opts.Via != nil {
		return e.opts.Via(addr)
	}
	return addr
}

func (e *Etcd) configure(members string) {
	e.t.Helper()
	var args []string
	if certs := e.opts.TLS; certs != nil {
		args = append(args, "--client-cert-auth",
			"--trusted-ca-file="+certs.CAFile, "--cert-file="+certs.CertFile, "--key-file="+certs.KeyFile)
	}
	args = append(args,
		"--name="+e.name(),
		"--data-dir="+e.DataDir(),
		"--listen-client-urls="+e.url(),
		"--advertise-client-urls="+e.url(),
		"--listen-peer-urls=http://"+ports.Addr(e.peer),
		"--initial-advertise-peer-urls=http://"+e.advertised(),
		"--initial-cluster="+members,
		"--initial-cluster-token="+members, // keeps servers of other tests out of this cluster
		"--heartbeat-interval="+etcdHeartbeat,
		"--election-timeout="+etcdElection,
		"--bcrypt-cost=4",   // minimum cost, so that logins are fast
		"--unsafe-no-fsync", // safe against SIGKILL, because the kernel keeps what was written
		"--log-level=warn",
	)
	e.prepare(program{
		binary: "etcd",
		args:   append(args, e.opts.Args...),
		ready:  e.healthy,
		paths:  builtTools(),
	})
}

// builtTools returns where make puts the programs that it builds: .bin in a folder above the package under test.
func builtTools() (dirs []string) {
	dir, _ := os.Getwd() // "" after an error
	for below := ""; dir != below; below, dir = dir, filepath.Dir(dir) {
		dirs = append(dirs, filepath.Join(dir, ".bin"))
	}
	return dirs
}

// healthy returns an error unless the server has a leader and can write.
func (e *Etcd) healthy() error {
	var answer struct{ Health, Reason string }
	err := e.Ask("/health", nil, &answer)
	if err == nil && answer.Health != "true" {
		err = fmt.Errorf("%s is not healthy: %s", e.Addr(), answer.Reason)
	}
	return err
}

// Ask calls a method of a server, such as "/v3/maintenance/status", or reads a page if request is nil.
func (e *Etcd) Ask(path string, request, answer any) error {
	certs := cmp.Or(e.opts.TLS, new(Certificates))
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: certs.Config}
	client := http.Client{Timeout: etcdRequest, Transport: transport}
	var body bytes.Buffer
	verb := http.MethodGet
	if request != nil {
		verb = http.MethodPost
		if err := json.NewEncoder(&body).Encode(request); err != nil {
			return err
		}
	}
	r, err := http.NewRequest(verb, e.url()+path, &body)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", path, e.Addr(), response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// EnableAuth creates the user root with that password and enables authentication.
func (e *Etcd) EnableAuth(password string) {
	e.t.Helper()
	for _, step := range []struct {
		method  string
		request map[string]any
	}{
		{"/v3/auth/user/add", map[string]any{"name": "root", "password": password}},
		{"/v3/auth/role/add", map[string]any{"name": "root"}},
		{"/v3/auth/user/grant", map[string]any{"user": "root", "role": "root"}},
		{"/v3/auth/enable", map[string]any{}},
	} {
		if err := e.Ask(step.method, step.request, nil); err != nil {
			e.t.Fatalf("enable authentication: %v", err)
		}
	}
}

// Leader returns the leader. It waits until all running servers agree on it.
func (c *EtcdCluster) Leader() *Etcd {
	c.t.Helper()
	return pollFor(c.t, startLimit, func() (leader *Etcd, err error) {
		id := ""
		for _, e := range awake(c.Nodes) {
			var status struct {
				Header struct {
					Member string `json:"member_id"`
				} `json:"header"`
				Leader string `json:"leader"`
			}
			if err := e.Ask("/v3/maintenance/status", map[string]any{}, &status); err != nil {
				return nil, err
			}
			switch {
			case status.Leader == "" || status.Leader == "0":
				return nil, fmt.Errorf("%s knows no leader", e.Addr())
			case id != "" && id != status.Leader:
				return nil, fmt.Errorf("servers do not agree on the leader")
			}
			if id = status.Leader; id == status.Header.Member {
				leader = e
			}
		}
		if leader == nil {
			err = fmt.Errorf("the leader %s is not up", id)
		}
		return leader, err
	})
}

// Followers returns the servers that are not the leader.
func (c *EtcdCluster) Followers() []*Etcd {
	c.t.Helper()
	leader := c.Leader()
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(e *Etcd) bool { return e == leader })
}

// PeerAddr returns the address on which the server listens for the other members of its cluster.
func (e *Etcd) PeerAddr() string { return ports.Addr(e.peer) }

// StartLearner adds a member without a vote to a single server. It refuses almost all requests.
func (e *Etcd) StartLearner(t testing.TB) *Etcd {
	t.Helper()
	l := &Etcd{Process: newProcess(t), peer: ports.Reserve(t), opts: e.opts}
	request := map[string]any{"peerURLs": []string{"http://" + l.advertised()}, "isLearner": true}
	if err := e.Ask("/v3/cluster/member/add", request, nil); err != nil {
		t.Fatalf("add a learner: %v", err)
	}
	l.opts.Args = append(l.opts.Args, "--initial-cluster-state=existing")
	l.configure(fmt.Sprintf("%s=http://%s,%s=http://%s", e.name(), e.advertised(), l.name(), l.advertised()))
	l.prog.ready = func() error { return l.Ask("/version", nil, nil) }
	startAll(l)
	return l
}
