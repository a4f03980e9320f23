package etcdstore

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A floor above the tokens of the current revision is stored on the server, and earlier clients
// learn of it.
func TestAFloorHoldsForAllClients(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	one, two := opened(t, server.Addr()), opened(t, server.Addr())
	ctx := within(t, patience)
	highest := int64(0)
	grant := func(s *Store, floor int64) store.Request {
		t.Helper()
		req := request("a", false)
		req.Floor, req.Tokens = floor, block
		answer := must(t, s, req, 0)
		if answer.Token <= max(highest, floor) || answer.Tokens != block {
			t.Fatalf("%d tokens from %d, want more than %d and the floor %d", answer.Tokens, answer.Token, highest, floor)
		}
		highest = answer.Token + block - 1
		return req
	}
	release := func(s *Store, req store.Request) {
		t.Helper()
		if err := s.Release(ctx, "a", req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
	}
	release(one, grant(one, 0))
	release(two, grant(two, 0))
	release(one, grant(one, highest+1000*block))
	release(two, grant(two, 0)) // this store did not know of the floor
	req := grant(one, highest+1000*block)
	out, err := two.Renew(ctx, []store.Renewal{{Name: "a", ID: req.ID, TTL: req.TTL, Mode: req.Mode, Floor: highest + 1000*block}})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v", out, err)
	}
	highest += 1000 * block
	out, err = one.Renew(ctx, []store.Renewal{{Name: "a", ID: req.ID, TTL: req.TTL, Mode: req.Mode, Tokens: 5}})
	if err != nil || out[0].Token <= highest {
		t.Fatalf("Renew: %+v, %v, want tokens above %d", out, err, highest)
	}
	highest = out[0].Token + 4
	release(one, req)
	release(opened(t, server.Addr()), grant(opened(t, server.Addr()), 0))

	over := request("a", false)
	over.Floor = store.MaxToken - block
	if _, err := one.Acquire(ctx, over); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a floor with no tokens above it: %v", err)
	}
}
