//go:build mutants

package quorum

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// The model must find a violation if any one of the rules is switched off.
func TestMutantsOfEveryRuleAreFound(t *testing.T) {
	const rules = "rules.go"
	suites.Mutants(t, "TestModelHolds.*", `I[123]: .*`, []suites.Mutant{
		{"Majority", rules, "return n/2 + 1", "return max(1, n/2)"},
		{"Above", rules, "v.state == granted && v.first <= first && v.recorded", "first = firsts[0]; v.state == granted && v.recorded"},
		{"Recorded", rules, "return decision{conflict, first, last}", "return decision{won, first, last}"},
		{"Young", rules, "return uptime >= delay", "return true"},
		{"Validity", rules, "func validUntil(begin, _ time.Duration", "func validUntil(_, begin time.Duration"},
		{"Order", rules, "return granted && !ending && !barred", "return granted && !ending"},
		{"Voted", rules, "return granted && !ending && !barred", "return granted && !barred"},
		{"Renewal", rules, "case extended >= majority(nodes):", "case extended > 0:"},
		{"Over", rules, "return now < until", "return true"},
	})
}
