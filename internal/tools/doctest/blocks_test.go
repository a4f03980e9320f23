// Package doctest checks the code blocks of the pages that users read: Go code is built, and
// shell commands are run. Tests that pages name must exist.
//
// A fenced block has a language. Code in go is compiled as it is if it begins with a package
// clause, and otherwise as declarations or as the body of a function; known packages are
// imported. A comment in front of the block can declare names that the block uses:
//
//	<!-- go: var client *redis.Client -->
//
// Commands in sh are run by bash, in a folder of their own, with servers on the usual ports. Programs
// in python and js are run too. A block that cannot be run says why:
//
//	<!-- norun: needs the network -->
package doctest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the folder of the repository.
const root = "../../.."

// pages are the pages whose blocks are checked.
var pages = []string{"README*.md", "docs/*.md", "examples/README.md"}

// languages are the languages that a block may have. Languages with the value false are not code.
var languages = map[string]bool{"go": true, "sh": true, "python": true, "js": true, "text": false, "mermaid": false}

// A block is a fenced block of a page.
type block struct {
	page  string // relative to the root
	line  int    // number of the first line of text
	lang  string
	text  string
	given string // Go declarations, from comments in front of the block
	norun string // why it is not run
}

func (b *block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

var fenceLine = regexp.MustCompile("^(`{3,})(\\w*)$")

// comments returns the contents of the comments at the end of a text.
func comments(text string) (given, norun string) {
	for {
		rest, ok := strings.CutSuffix(strings.TrimSpace(text), " -->")
		if !ok {
			return given, norun
		}
		i := strings.LastIndex(rest, "<!-- ")
		if i < 0 {
			return given, norun
		}
		comment := rest[i+len("<!-- "):]
		if code, ok := strings.CutPrefix(comment, "go: "); ok {
			given = code + "\n" + given
		} else if reason, ok := strings.CutPrefix(comment, "norun: "); ok {
			norun = reason
		}
		text = rest[:i]
	}
}

// blocksOf returns the fenced blocks of a page. It returns an error for a block that no check
// would see: one that is indented, or has an unknown language.
func blocksOf(page, text string) ([]*block, error) {
	var all []*block
	var b *block // the open block
	var fence, before string
	afterBlank, inList := true, false
	for i, line := range strings.Split(text, "\n") {
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case b != nil && line == fence:
			all = append(all, b)
			b, before = nil, ""
		case b != nil:
			b.text += line + "\n"
		case m != nil:
			if _, ok := languages[m[2]]; !ok {
				return nil, fmt.Errorf("%s:%d: a block in %q: want one of go, sh, python, js, text, mermaid", page, i+1, m[2])
			}
			fence = m[1]
			b = &block{page: page, line: i + 2, lang: m[2]}
			b.given, b.norun = comments(before)
		case strings.HasPrefix(line, "    ") && afterBlank && !inList:
			return nil, fmt.Errorf("%s:%d: an indented block: use a fence with a language", page, i+1)
		default:
			before += line + "\n"
			inList = inList && (line == "" || line[0] == ' ') || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "1. ")
		}
		afterBlank = line == ""
	}
	if b != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", page, b.line)
	}
	return all, nil
}

// blocks returns the blocks of all pages that are in a language.
func blocks(t *testing.T, lang string) []*block {
	t.Helper()
	var all []*block
	for _, pattern := range pages {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			page, err := filepath.Rel(root, file)
			must(t, err)
			found, err := blocksOf(filepath.ToSlash(page), string(text))
			if err != nil {
				t.Error(err)
			}
			all = append(all, slices.DeleteFunc(found, func(b *block) bool { return b.lang != lang })...)
		}
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
