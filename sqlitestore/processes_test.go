package sqlitestore_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestTheLockOfAKilledHolderIsFreeAfterItsTTL(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	const ttl = time.Second
	holder := start(t, "hold", path, "order", ttl.String())
	holder.hears("held")
	holder.kill()
	began := time.Now()
	for {
		req := request("order")
		answer, err := s.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Granted() {
			break
		}
		if waited := time.Since(began); waited > ttl+time.Second {
			t.Fatalf("still held %v after its holder was killed", waited)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestProcessesAreServedInOrder(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	req := take(t, s, "order")
	var children []*child
	for i := range 5 {
		c := start(t, "queue", path, "order")
		if place := c.hears("queued"); place != strconv.Itoa(i+1) {
			t.Fatalf("place %s, want %d", place, i+1)
		}
		children = append(children, c)
	}
	release(t, s, req)
	var tokens []int64
	for _, c := range children {
		token, err := strconv.ParseInt(c.hears("served"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if !slices.IsSorted(tokens) {
		t.Errorf("tokens %d, want them in the order of arrival", tokens)
	}
}

func TestAKilledWaiterDelaysTheNextByAtMostOneHeartbeat(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	req := take(t, s, "order")
	var dead []*child
	for range 3 {
		c := start(t, "queue", path, "order")
		c.hears("queued")
		dead = append(dead, c)
	}
	last := start(t, "queue", path, "order")
	last.hears("queued")
	for _, c := range dead {
		c.kill()
		c.cmd.Wait()
	}
	began := time.Now()
	release(t, s, req)
	last.hears("served")
	if waited, limit := time.Since(began), s.Capabilities().Heartbeat+2*time.Second; waited > limit {
		t.Errorf("served after %v, want %v at most", waited, limit)
	}
}

func TestManyProcessesLoseNoUpdate(t *testing.T) {
	const processes, times = 8, 15
	dir := t.TempDir()
	path, counter := filepath.Join(dir, "locks.db"), filepath.Join(dir, "counter")
	if err := os.WriteFile(counter, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var children []*child
	for range processes {
		children = append(children, start(t, "increment", path, counter, strconv.Itoa(times)))
	}
	for _, c := range children {
		for line := range c.lines {
			t.Error(line)
		}
	}
	text, err := os.ReadFile(counter)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(processes * times); string(text) != want {
		t.Errorf("counted to %s, want %s", text, want)
	}
	wantRows(t, path)
}

func TestManyProcessesOpenANewFileAtOnce(t *testing.T) {
	path := newPath(t)
	var children []*child
	for i := range 10 {
		children = append(children, start(t, "open", path, "order:"+strconv.Itoa(i)))
	}
	tokens := map[string]bool{}
	for _, c := range children {
		tokens[c.hears("token")] = true
	}
	if len(tokens) != 10 {
		t.Errorf("%d different tokens of 10 grants", len(tokens))
	}
}
