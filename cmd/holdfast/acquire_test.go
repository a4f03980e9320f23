//go:build unix

package main

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestAScriptCanAcquireRenewAndRelease(t *testing.T) {
	s := newSite(t)
	s.write("script", `#!/bin/sh
set -e
lock=$(holdfast acquire --ttl 20s --meta "it's mine" "the lock")
eval "$lock"
test "$HOLDFAST_NAME" = "the lock"
sh -c 'test $HOLDFAST_TOKEN -gt 0'
if holdfast run -nq "the lock" -- true; then exit 1; fi
eval "$(holdfast renew "$HOLDFAST_NAME" --id "$HOLDFAST_ID" --ttl 1h)"
test $HOLDFAST_DEADLINE -gt $(($(date +%s) + 3000))
holdfast release "$HOLDFAST_NAME" --id "$HOLDFAST_ID"
holdfast run -n "the lock" -- true
code=0
holdfast release "$HOLDFAST_NAME" --id "$HOLDFAST_ID" || code=$?
test $code = 79
code=0
holdfast renew "$HOLDFAST_NAME" --id "$HOLDFAST_ID" || code=$?
test $code = 79
`)
	s.program(s.path("script")).start().wantCode(0)
}

func TestAnAcquiredLockIsHeldUntilItsTTLIsOver(t *testing.T) {
	s := newSite(t)
	begin := time.Now()
	g := decode[grantJSON](t, s.ok("acquire", "--json", "--ttl", "4s", "a"))
	if l := s.show("a"); len(l.Holders) != 1 || l.Holders[0].ID != g.ID || l.Holders[0].Token != g.Token || l.Holders[0].Owner != g.Owner || g.Name != "a" {
		t.Errorf("acquired %+v, shown %+v", g, l)
	}
	if d := g.Deadline.Sub(begin); d < 3*time.Second || d > 4*time.Second+time.Since(begin) {
		t.Errorf("deadline in %v", d)
	}
	s.run("run", "a", "--", "true").wantCode(0) // waits until the lock has expired
	if d := time.Since(begin); d < 4*time.Second {
		t.Errorf("the lock was free after %v", d)
	}
}

func TestALockIsReleasedIfItsIDCannotBePrinted(t *testing.T) {
	s := newSite(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	p := s.command("acquire", "a")
	p.cmd.Stdout = w
	p.start().wantCode(74)
	p.wantErr("cannot write the output")
	if n := len(s.show("a").Holders); n != 0 {
		t.Error("it is still held")
	}
}

func TestARenewalKeepsTheMode(t *testing.T) {
	s := newSite(t)
	for _, flags := range [][]string{{"--shared"}, {"--slots", "2"}, nil} {
		name := "lock" + strconv.Itoa(len(flags))
		g := decode[grantJSON](t, s.ok(append([]string{"acquire", "--json", name}, flags...)...))
		before := s.show(name).Holders[0].Mode
		s.ok("renew", name, "--id", g.ID)
		if after := s.show(name).Holders[0].Mode; after != before {
			t.Errorf("%s became %s", before, after)
		}
		s.ok("release", name, "--id", g.ID)
	}
}
