package etcdstore

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// childEnv makes the test binary a process that takes a lock: the URL of the store.
const childEnv = "ETCDSTORE_TEST_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		if err := child(url); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	// Most of them wait most of the time: for leases to end, and for servers to start.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("6")
	}
	os.Exit(m.Run())
}

// child locks a name, says its token, and unlocks when its standard input ends.
func child(url string) error {
	u, err := store.ParseURL(url)
	if err != nil {
		return err
	}
	s, err := openWith(context.Background(), u, config{heartbeat: slowBeat, minTTL: quick})
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := holdfast.New(s, holdfast.WithTTL(4*time.Second)) // some are killed while they hold
	if err != nil {
		return err
	}
	defer c.Close()
	lease, err := c.Lock(context.Background(), "a")
	if err != nil {
		return err
	}
	fmt.Println(lease.Token())
	io.Copy(io.Discard, os.Stdin)
	return lease.Unlock(context.Background())
}

// A process waits for the lock, in another process.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	token chan string // what it says when it has the lock
}

func startProcess(t *testing.T, url string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe), token: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+url)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.token)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.token <- lines.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	p.in.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// Some are killed while they wait and some while they hold; all others are served in the order
// in which they came.
func TestProcessesAreServedInOrderThoughSomeAreKilled(t *testing.T) {
	t.Parallel()
	const n = 10
	cluster := servers.StartEtcdCluster(t, 3, servers.EtcdOptions{})
	s := opened(t, cluster.Addrs()...)
	holder := request("a", false)
	must(t, s, holder, 0)
	queue := make([]*process, n)
	for i := range queue {
		queue[i] = startProcess(t, url(cluster.Addrs()...))
		waiting(t, s, "a", i+1)
	}
	order := rand.Perm(n)
	inQueue, holding := order[:n/3], order[n/3:n/2]
	t.Logf("killed: %v while they wait, %v while they hold", inQueue, holding)
	for _, i := range inQueue[:len(inQueue)/2] {
		queue[i].kill()
	}
	if err := s.Release(bounded(t, patience), "a", holder.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	for _, i := range inQueue[len(inQueue)/2:] { // meanwhile others are served
		queue[i].kill()
	}
	highest := int64(0)
	for i, p := range queue {
		if slices.Contains(inQueue, i) {
			continue // it may have had the lock before it was killed
		}
		var line string
		select {
		case line = <-p.token:
		case <-time.After(2 * patience):
			t.Fatalf("process %d is not served", i)
		}
		token, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatalf("process %d: %q", i, line)
		}
		if token <= highest {
			t.Fatalf("process %d has token %d after %d", i, token, highest)
		}
		highest = token
		for j := i + 1; j < n; j++ {
			select {
			case line := <-queue[j].token:
				if !slices.Contains(inQueue, j) {
					t.Fatalf("process %d was served before %d: %q", j, i, line)
				}
			default:
			}
		}
		if slices.Contains(holding, i) {
			p.kill()
		} else {
			p.in.Close() // it unlocks
		}
	}
	if answer := eventually(t, func(ctx context.Context) (store.Answer, error) {
		answer, err := s.Acquire(ctx, request("a", false))
		if err == nil && !answer.Granted() {
			err = fmt.Errorf("refused: %+v", answer.Refusal)
		}
		return answer, err
	}); answer.Waiters != 0 {
		t.Errorf("%d wait though all were served or killed", answer.Waiters)
	}
}
