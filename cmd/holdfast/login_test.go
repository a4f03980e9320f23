//go:build unix

package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// The command line may be right, and the password may have changed. The tests of each store check that
// its error says so.
func TestAWrongPasswordIsNotAMistakeOnTheCommandLine(t *testing.T) {
	s := newSite(t)
	addr := servers.StartRedis(t, servers.RedisOptions{Password: "sEcReT"}).Addr()
	for _, url := range []string{"redis://:wrong@" + addr, "redis://" + addr} {
		p := s.run("run", "--store", url, "a", "--", "true")
		p.wantCode(69)
		p.wantErr("cannot open the store", "check the user and the password", "--store or HOLDFAST_STORE")
	}
}
