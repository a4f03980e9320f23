package servers

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

// StartLearner adds a member that does not vote to the cluster of a single server, and waits until
// it answers. A learner refuses almost all requests.
func (e *Etcd) StartLearner(t testing.TB) *Etcd {
	t.Helper()
	l := &Etcd{endpoint: endpoint{ports.Reserve(t)}, peer: ports.Reserve(t), opts: e.opts}
	request := map[string]any{"peerURLs": []string{"http://" + l.advertised()}, "isLearner": true}
	if err := e.Ask("/v3/cluster/member/add", request, nil); err != nil {
		t.Fatalf("add a learner: %v", err)
	}
	l.opts.Args = append(l.opts.Args, "--initial-cluster-state=existing")
	l.prepare(t, fmt.Sprintf("%s=http://%s,%s=http://%s", e.name(), e.advertised(), l.name(), l.advertised()))
	l.prog.ready = func() error { return l.call(http.MethodGet, "/version", nil, nil) }
	startAll(l)
	return l
}
