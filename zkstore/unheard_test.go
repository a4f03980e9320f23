package zkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A join whose reply was lost leaves a node. The repeated request creates a second one. If the
// caller gives up before one of the nodes is removed, Leave removes both.
func joinedTwice(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=60s")
	other := openQuick(t, "zk://"+server.Addr()+root)
	try(t, other, request("a"))
	req := suites.Queued("a")
	numbered := func(number string) func([]byte) bool {
		return func(b []byte) bool { return bytes.Contains(b, []byte(req.ID.String()+"-"+number)) }
	}
	lost := proxy.DropRepliesAfter(numbered("\x00\x00")) // the server adds the number
	joined := make(chan error, 1)
	go func() {
		_, err := s.Acquire(within(t), req)
		joined <- err
	}()
	<-lost
	suites.Eventually(t, "no node is created", func() bool { return len(mentioning(nodes(t, admin, root), req.ID)) == 1 })
	proxy.Cut()
	if err := <-joined; err == nil {
		t.Fatal("an answer though it was lost")
	}
	cut := proxy.CutOn(numbered("0000000002")) // the removal of the second node
	proxy.Heal()
	if _, err := s.Acquire(within(t), req); err == nil {
		t.Fatal("an answer though the connection was cut")
	}
	<-cut
	proxy.Heal()
	if list := mentioning(nodes(t, admin, root), req.ID); len(list) != 2 {
		t.Fatalf("nodes %v, want two of one request", list)
	}
	must(t, s.Leave(within(t), req.Name, req.ID))
	if left := mentioning(nodes(t, admin, root), req.ID); len(left) > 0 {
		t.Errorf("left by Leave: %v", left)
	}
}

// A server begins the session, and then stops replying.
func openUnheard(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy := faultproxy.Start(t, server.Addr())
	proxy.HoldRepliesAfter(func(b []byte) bool { return bytes.Contains(b, []byte(root+"/token")) })
	ctx, cancel := context.WithTimeout(t.Context(), requestLimit/4)
	defer cancel()
	begin := time.Now()
	_, err := store.Open(ctx, "zk://"+proxy.Addr()+root)
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > requestLimit {
		t.Errorf("%v after %v, want the end of the context after %v", err, took, requestLimit/4)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "nil") || !strings.Contains(text, "no reply") {
		t.Errorf("%s, want that there was no reply", text)
	}
}

// The replies to two renewals of one grant arrive late, when no caller waits for them. The second
// renewal was refused because of the first.
func renewedUnheard(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy := faultproxy.Start(t, server.Addr())
	other := openQuick(t, "zk://"+server.Addr()+root)
	s := openQuick(t, "zk://"+proxy.Addr()+root+"?session=5m")
	req := request("a")
	req.TTL = 2 * time.Second
	try(t, s, req)
	proxy.ToClient.Hold()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		out, err := s.Renew(ctx, []store.Renewal{suites.Renewal(req)})
		if cancel(); err == nil && out[0].Err == nil {
			t.Fatalf("%+v, %v though the reply did not arrive", out, err)
		}
	}
	proxy.Heal()
	suites.Eventually(t, "the grant does not end", func() bool { return try(t, other, request(req.Name)).Granted() })
}

// The grant ends for its client, which then reads that the node was written, and when.
func renewedLongAgo(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=5m")
	req := request("a")
	req.TTL = 3 * time.Second
	try(t, s, req)
	c := s.claimOf(wake.Key{Name: req.Name, ID: req.ID})
	proxy.Lose(t, has(req.ID), func(ctx context.Context) error {
		_, err := s.Renew(ctx, []store.Renewal{suites.Renewal(req)})
		return err
	}, func() (string, error) {
		exists := &wire.Call{Op: wire.Exists(c.path(), false)}
		err := admin.Do(t.Context(), exists)
		return fmt.Sprint(exists.Stat.Version), err
	})
	end := c.endsAt(s)
	suites.Eventually(t, "the renewal is not noticed", func() bool { return c.endsAt(s) != end })
	now, err := s.now(within(t))
	if behind := time.Since(time.UnixMilli(now)); err != nil || behind > req.TTL/2 {
		t.Errorf("the servers' clock is %v behind, %v", behind, err)
	}
}

// A grant of another handle is taken over by a request whose reply is lost. The request is not
// repeated, and the session continues.
func takenOverUnheard(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=5m")
	one := openQuick(t, "zk://"+server.Addr()+root)
	req := request("a")
	req.TTL = time.Second
	try(t, one, req)
	one.die()
	id := []byte(req.ID.String())
	lost := proxy.DropRepliesAfter(func(b []byte) bool { return bytes.Count(b, id) > 3 }) // a take and a read contain it three times
	done := make(chan error, 1)
	go func() {
		_, err := s.Acquire(within(t), req)
		done <- err
	}()
	<-lost
	suites.Eventually(t, "the node is not taken over", func() bool {
		list := mentioning(nodes(t, admin, root), req.ID)
		call := &wire.Call{Op: wire.Exists(list[0], false)}
		return admin.Do(within(t), call) == nil && call.Stat.EphemeralOwner == s.currentSession()
	})
	proxy.Cut()
	proxy.Heal()
	if err := <-done; err == nil {
		t.Fatal("an answer though it was lost")
	}
	suites.Eventually(t, "the grant does not end", func() bool { return len(mentioning(nodes(t, admin, root), req.ID)) == 0 })
}

// mentioning returns the nodes whose name contains an identity.
func mentioning(list []string, id store.ID) []string {
	return slices.DeleteFunc(list, func(node string) bool { return !strings.Contains(node, id.String()) })
}
