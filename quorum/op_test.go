package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// after delays the replies of a node.
func after(d time.Duration) func(context.Context, string) error {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// A boundedServer is a node that knows when its server restarted, and ends its calls by itself.
type boundedServer struct{ *selfBounded }

func (*boundedServer) Connections() uint64 { return 1 }

func (b *boundedServer) Server(ctx context.Context) (server quorum.Server, err error) {
	err = b.pass(ctx, "Server", func() error { return nil })
	return quorum.Server{ID: "run", Uptime: time.Hour}, err
}

// A node that hangs while the quorum is opened is known not to answer, so later calls do not wait for
// it.
func TestNodeThatHangsWhileTheQuorumIsOpenedDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		for i := range 3 {
			g := &gate{Store: memstore.New()}
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: g})
			if i == 0 {
				g.set(hang(forever), nil)
				nodes[i].Store = &boundedServer{&selfBounded{g, 3 * time.Second}}
			}
		}
		reports := make(chan string, 10)
		begin := time.Now()
		q := openQuorum(t, nodes, quorum.Options{Report: func(node string, _ error) { reports <- node }})
		defer q.Close()
		if d := time.Since(begin); d > quorum.DefaultTimeout+100*time.Millisecond {
			t.Errorf("opened after %v", d)
		}
		if len(reports) != 1 {
			t.Errorf("%d reports, want one of the node that hangs", len(reports))
		}
		for i := range 3 { // the node is the first one for one of the names
			begin = time.Now()
			mustAcquire(t, q, request(fmt.Sprint("n", i)))
			if d := time.Since(begin); d > 0 {
				t.Errorf("granted after %v", d)
			}
		}
	})
}

// The votes are split while one of five nodes is known not to answer. The candidate acts on each
// reply of the others, and does not wait for that node.
func TestCandidateDoesNotWaitForANodeThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		at(4).set(lose("Acquire", "Renew", "Release", "Leave"), nil)
		previous := request("n")
		mustAcquire(t, q, previous)
		time.Sleep(time.Second) // it requests the vote of node 4
		if err := q.Release(t.Context(), "n", previous.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for i := 1; i < 4; i++ {
			other := request("n")
			if a, err := at(i).Store.Acquire(t.Context(), other); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
			time.AfterFunc(2*time.Millisecond, func() { at(i).Store.Leave(context.Background(), "n", other.ID) })
		}
		at(0).set(nil, after(time.Millisecond))
		begin := time.Now()
		mustAcquire(t, q, request("n"))
		if d := time.Since(begin); d > 10*time.Millisecond {
			t.Errorf("granted after %v, and all nodes but one had its vote to give after 2 ms", d)
		}
	})
}

func TestCloseWaitsForACallThatBeganWhileTheQuorumWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		answered := false
		for i := range 3 {
			g := &gate{Store: memstore.New()}
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: g})
			if i == 0 {
				g.set(func(context.Context, string) error {
					time.Sleep(2 * time.Second)
					answered = true
					return errDown
				}, nil)
				nodes[i].Store = &boundedServer{&selfBounded{g, 3 * time.Second}}
			}
		}
		q := openQuorum(t, nodes, quorum.Options{Report: func(string, error) {}})
		q.Close()
		if !answered {
			t.Error("a call is in flight after Close")
		}
	})
}
