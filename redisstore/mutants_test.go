//go:build mutants

package redisstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestMutantsAreFound(t *testing.T) {
	const dir = "../internal/redis/rediscore/scripts/"
	suites.Mutants(t, "TestCompareASingleServer", `sequence \d+ of seed.*`, []suites.Mutant{
		{"permits", dir + "state.lua", "use.s + weight <= limit", "use.s < limit"},
		{"shared beside permits", dir + "state.lua", "not sole and (use.n == 0 or", "not sole and (use.n == 0 or mode == EXCLUSIVE and use.n == 1 or"},
		{"cooling wakes nobody", dir + "state.lua", "elseif fits or use.k > 0 or sole and sole.state ~= HELD then", "elseif fits then"},
		{"order", dir + "acquire.lua", "if fits and (not front or front.field == field) then", "if fits and (not front or w) then"},
		{"stays queued", dir + "acquire.lua", "elseif w then\n  dropWaiter(field)", "elseif w and waiting > 99 then\n  dropWaiter(field)"},
		{"other limits", dir + "acquire.lua", "(use.m ~= mode or use.l ~= limit)", "use.m ~= mode"},
		{"leave the queue", dir + "release.lua", "if what == 'leave' and waiting > 0 and", "if what == 'leave' and waiting > 1 and"},
		{"leave kept", dir + "release.lua", "h.state ~= HELD and what ~= 'break'", "h.state ~= HELD and what == 'release'"},
		{"done wakes one", dir + "release.lua", "if state == DONE then --", "if state == DONE and waiting > 99 then --"},
		{"done shared", dir + "release.lua", "if state == DONE and h.mode ~= EXCLUSIVE then", "if state == DONE and h.mode == PERMITS then"},
		{"block beside waiters", dir + "renew.lua", "if tokens > 0 and waiting == 0 then", "if tokens > 0 then"},
		{"permits become shared", dir + "renew.lua", "local down = mode == SHARED and h.mode == EXCLUSIVE", "local down = mode == SHARED and h.mode ~= SHARED"},
		{"downgrade wakes nobody", dir + "renew.lua", "sole, freed, h.mode = nil, true, SHARED", "sole, h.mode = nil, SHARED"},
		{"floor", dir + "tokens.lua", "if token > floor and token", "if token"},
		{"pushed for too long", dir + "push.lua", "next, last = string.sub(field, 2), now + grant", "next, last = string.sub(field, 2), now + 100 * grant"},
	})
}
