//go:build mutants

package quorum

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// mutants switch off one rule each: they replace pieces of rules.go.
var mutants = map[string][]string{
	"Majority": {"return n/2 + 1", "return max(1, n/2)"},
	"Above":    {"first := firsts[most-1]", "first := firsts[0]", "v.state == granted && v.first <= first && v.recorded", "v.state == granted && v.recorded"},
	"Recorded": {"return decision{conflict, first, last}", "return decision{won, first, last}"},
	"Young":    {"return uptime >= delay", "return true"},
	"Validity": {"func validUntil(begin, _ time.Duration", "func validUntil(_, begin time.Duration"},
	"Order":    {"return granted && !ending && !barred", "return granted && !ending"},
	"Voted":    {"return granted && !ending && !barred", "return granted && !barred"},
	"Renewal":  {"case extended >= majority(nodes):", "case extended > 0:"},
	"Over":     {"return now < until", "return true"},
}

// The model must find a violation if any one of the rules is switched off. A mutant of this package is
// built for each rule, and its tests of the model are run.
func TestMutantsOfEveryRuleAreFound(t *testing.T) {
	source, err := os.ReadFile("rules.go")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("rules.go")
	if err != nil {
		t.Fatal(err)
	}
	var two sync.WaitGroup
	turns := make(chan struct{}, 2)
	for name, m := range mutants {
		two.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			changed := string(source)
			for i := 0; i < len(m); i += 2 {
				if strings.Count(changed, m[i]) != 1 {
					t.Errorf("%s: rules.go does not have this once: %s", name, m[i])
					return
				}
				changed = strings.Replace(changed, m[i], m[i+1], 1)
			}
			dir := t.TempDir()
			mutant, overlay := filepath.Join(dir, "rules.go"), filepath.Join(dir, "overlay.json")
			text, _ := json.Marshal(map[string]any{"Replace": map[string]string{here: mutant}})
			if err := os.WriteFile(mutant, []byte(changed), 0o600); err != nil {
				t.Error(err)
				return
			}
			if err := os.WriteFile(overlay, text, 0o600); err != nil {
				t.Error(err)
				return
			}
			out, err := exec.Command("go", "test", "-overlay", overlay, "-failfast", "-vet=off", "-run", "^TestModelHolds", ".").CombinedOutput()
			found := regexp.MustCompile(`I[123]: .*`).Find(out)
			if err == nil || found == nil {
				t.Errorf("%s: no violation is found without this rule:\n%s", name, out)
				return
			}
			t.Logf("%s: %s", name, found)
		})
	}
	two.Wait()
}
