package doctest

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("\\bTest[A-Z]\\w*(?:/[^`]+)?")

// A page names a subtest as `TestParent/name of the subtest`.
func TestPagesNameTestsThatExist(t *testing.T) {
	tests := make(map[string]string)   // the code of the tests in a folder
	named := make(map[string][]string) // the pages that name a test
	dir := os.DirFS(root)
	must(t, fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		isTest := strings.HasSuffix(path, "_test.go")
		if err != nil || !isTest && !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := fs.ReadFile(dir, path)
		if isTest {
			tests[path[:strings.LastIndex(path, "/")+1]] += string(text)
			return err
		}
		for _, name := range testName.FindAllString(string(text), -1) {
			named[name] = append(named[name], path)
		}
		return err
	}))
	if len(named) < 40 {
		t.Errorf("the pages name only %d tests", len(named))
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		parts := strings.Split(name, "/")
		for i, part := range parts[1:] {
			parts[i+1] = strconv.Quote(part)
		}
		parts[0] = "func " + parts[0] + "(t *testing.T)"
		if !slices.ContainsFunc(slices.Collect(maps.Values(tests)), func(code string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(code, part) })
		}) {
			t.Errorf("%s: there is no test %s", strings.Join(named[name], ", "), name)
		}
	}
}
