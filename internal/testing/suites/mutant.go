package suites

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A Mutant is its name, a file, a piece of that file, which must be there exactly once, and what
// replaces it. The path of the file is relative to the package under test.
type Mutant [4]string

// Mutants runs a test of this package for each mutant in turn. Its output must contain the pattern.
func Mutants(t *testing.T, test, pattern string, mutants []Mutant) {
	for _, m := range mutants {
		name, path, old, changed := m[0], m[1], m[2], m[3]
		t.Run(name, func(t *testing.T) {
			file, err := filepath.Abs(path)
			must(t, err)
			source, err := os.ReadFile(file)
			must(t, err)
			if strings.Count(string(source), old) != 1 {
				t.Fatalf("%s does not have this once: %s", path, old)
			}
			dir := t.TempDir()
			mutant, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutant}})
			must(t, err)
			for name, text := range map[string]string{mutant: strings.Replace(string(source), old, changed, 1), overlay: string(replace)} {
				must(t, os.WriteFile(name, []byte(text), 0o600))
			}
			out, err := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-vet=off", "-run", "^"+test+"$", ".").CombinedOutput()
			found := regexp.MustCompile(pattern).Find(out)
			if err == nil || found == nil {
				t.Fatalf("not found (%v):\n%s", err, out)
			}
			t.Logf("%s", found)
		})
	}
}
