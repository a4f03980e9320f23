//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/store"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// golden compares with a file, which -update writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed; if that is meant, run: go test -run '%s' -update .", path, t.Name())
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	s := newSite(t)
	p := program()
	all := s.ok("help")
	if all != s.ok("--help") || all != s.ok("-h") {
		t.Error("help, --help and -h differ")
	}
	for _, c := range p.Commands {
		if !strings.Contains(all, "\n  "+c.Name) || !strings.Contains(all, c.Short[:10]) {
			t.Errorf("help does not name %s", c.Name)
		}
		out := s.ok("help", c.Name)
		if out != s.ok(c.Name, "--help") || out != s.ok(c.Name, "-h") {
			t.Errorf("%s: help and --help differ", c.Name)
		}
		if !strings.HasPrefix(out, "Usage: holdfast "+c.Name) {
			t.Errorf("%s: %q", c.Name, out)
		}
		for _, f := range c.Flags {
			if !strings.Contains(out, "--"+f.Long) {
				t.Errorf("%s: help does not name --%s", c.Name, f.Long)
			}
		}
		for line := range strings.SplitSeq(out+all, "\n") {
			if n := columns(line); n > 80 && !strings.HasPrefix(line, "  holdfast ") {
				t.Errorf("%s: %d columns: %q", c.Name, n, line)
			}
		}
	}
	for _, scheme := range store.Schemes() {
		if url := scheme + ":"; scheme != "memory" && !strings.Contains(all, url) {
			t.Errorf("help does not list %s", url)
		}
	}
	golden(t, "help.txt", all)
	golden(t, "help-run.txt", s.ok("help", "run"))
	p2 := s.run("help", "rnu")
	p2.wantCode(64)
	p2.wantErr("did you mean: holdfast run")
}

// What the documents ask of run is all there.
func TestRunHasEveryFlagOfItsDocuments(t *testing.T) {
	c := program().Find("run")
	for _, want := range []string{"-n", "--wait", "-w", "-E", "--busy-ok", "--ttl", "--at-least", "--period", "--max-hold", "--grace", "--signal", "--on-lost", "--shared", "-s", "--slots", "-c", "--json", "--json-fd", "-v", "-q", "--meta", "--store"} {
		if !slices.ContainsFunc(c.Flags, func(f *cli.Flag) bool {
			return want == "--"+f.Long || f.Short != 0 && want == "-"+string(rune(f.Short))
		}) {
			t.Errorf("run has no %s", want)
		}
	}
}

func TestVersion(t *testing.T) {
	s := newSite(t)
	out := s.ok("version")
	if !regexp.MustCompile(`^holdfast \S.* \(go1\.\S+, \w+/\w+\)\n$`).MatchString(out) || out != s.ok("--version") {
		t.Errorf("version: %q", out)
	}
}

func TestCompletionScriptsAreWhatTheyWere(t *testing.T) {
	s := newSite(t)
	for _, shell := range cli.Shells {
		golden(t, "completion."+shell, s.ok("completion", shell))
	}
}

// complete asks bash what it would offer behind a line.
func (s *site) complete(line string) []string {
	s.t.Helper()
	words := strings.Split(line, " ")
	script := fmt.Sprintf(`PATH=%s:$PATH; source <(holdfast completion bash)
		COMP_LINE=%s COMP_POINT=%d COMP_CWORD=%d COMP_WORDS=(%s)
		_holdfast; printf '%%s\n' "${COMPREPLY[@]}"`,
		filepath.Dir(command), shellQuote(line), len(line), len(words)-1, bashWords(words))
	cmd := exec.Command("bash", "--norc", "-c", script)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return slices.Compact(strings.Fields(string(out))) // one command may be in two directories
}

func bashWords(words []string) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, "'"+w+"'")
	}
	return strings.Join(quoted, " ")
}

func TestBashCompletesCommandsFlagsValuesAndLocks(t *testing.T) {
	s := newSite(t)
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(s.ok("completion", "bash"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("bash -n: %v: %s", err, out)
	}
	s.ok("acquire", "job:a")
	s.ok("acquire", "job:b")
	for _, test := range []struct {
		line string
		want string
	}{
		{"holdfast r", "run renew release"},
		{"holdfast run --on", "--on-lost"},
		{"holdfast run --on-lost ", "term kill warn"},
		{"holdfast run --signal I", "INT"},
		{"holdfast run --ttl ", ""},
		{"holdfast show --j", "--json"},
		{"holdfast show jo", "job:a job:b"},
		{"holdfast run -n job", "job:a job:b"},
		{"holdfast completion z", "zsh"},
		{"holdfast run a -- basenam", "basename"},
	} {
		if got := strings.Join(s.complete(test.line), " "); got != test.want {
			t.Errorf("%q: offers %q, want %q", test.line, got, test.want)
		}
	}
	if got := s.complete("holdfast run -"); len(got) < 25 {
		t.Errorf("flags of run: %q", got)
	}
	// Bash takes a colon for the end of a word.
	line := "holdfast show job:"
	script := fmt.Sprintf("PATH=%s:$PATH; source <(holdfast completion bash); COMP_LINE=%q COMP_POINT=%d COMP_CWORD=4 COMP_WORDS=(holdfast show job : ''); _holdfast; echo \"${COMPREPLY[@]}\"",
		filepath.Dir(command), line, len(line))
	cmd := exec.Command("bash", "--norc", "-c", script)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "a b\n" {
		t.Errorf("behind a colon: %q, %v", out, err)
	}
}

func TestManPagesAreWellFormedAndComplete(t *testing.T) {
	s := newSite(t)
	dir := s.path("man/man1")
	s.ok("man", dir)
	if s.ok("man") != s.read("man/man1/holdfast.1") {
		t.Error("man without a directory prints another page")
	}
	p := program()
	pages, err := os.ReadDir(dir)
	if err != nil || len(pages) != len(p.Commands)+1 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, page := range pages {
		checkRoff(t, page.Name(), s.read("man/man1/"+page.Name()))
	}
	for _, c := range p.Commands {
		text := s.read("man/man1/holdfast-" + c.Name + ".1")
		for _, f := range c.Flags {
			if !strings.Contains(text, `\-\-`+strings.ReplaceAll(f.Long, "-", `\-`)) {
				t.Errorf("holdfast-%s.1 does not name --%s", c.Name, f.Long)
			}
		}
	}
	run := s.read("man/man1/holdfast-run.1")
	for _, part := range []string{".SH EXIT CODES\n", ".SH ENVIRONMENT OF CMD\n", ".B 79\n", "HOLDFAST_TOKEN"} {
		if !strings.Contains(run, part) {
			t.Errorf("holdfast-run.1 has no %q", part)
		}
	}
	blocked := s.run("man", s.path("man/man1/holdfast.1"))
	blocked.wantCode(74)
	blocked.wantErr("cannot write the pages")
}

// checkRoff finds what man(1) would show wrong.
func checkRoff(t *testing.T, name, text string) {
	t.Helper()
	if !strings.HasPrefix(text, ".TH HOLDFAST") {
		t.Errorf("%s does not begin with .TH: %.40q", name, text)
	}
	var sections []string
	filled := true
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		where := fmt.Sprintf("%s:%d: %q", name, i+1, line)
		macro, arg, _ := strings.Cut(line, " ")
		switch {
		case line == "":
			t.Errorf("%s: empty line", where)
		case !strings.HasPrefix(line, "."):
			if strings.HasPrefix(line, "'") {
				t.Errorf("%s: taken for a request", where)
			}
			if bad := regexp.MustCompile(`(^|[^\\])-`).FindString(line); bad != "" {
				t.Errorf("%s: a bare hyphen", where)
			}
			if bad := regexp.MustCompile(`\\([^e\-&(]|$)`).FindString(line); bad != "" {
				t.Errorf("%s: unknown escape %q", where, bad)
			}
			if strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
				t.Errorf("%s: not ASCII", where)
			}
		case macro == ".SH":
			sections = append(sections, arg)
		case macro == ".nf" || macro == ".fi":
			if filled == (macro == ".fi") {
				t.Errorf("%s: twice", where)
			}
			filled = macro == ".fi"
		case !slices.Contains([]string{".TH", ".TP", ".B", ".BR", ".I", ".PP", ".RS", ".RE"}, macro):
			t.Errorf("%s: unknown macro", where)
		case (macro == ".B" || macro == ".BR" || macro == ".I") && arg == "":
			t.Errorf("%s: nothing to set", where)
		}
	}
	if !filled {
		t.Errorf("%s: .nf without .fi", name)
	}
	for _, want := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"} {
		if !slices.Contains(sections, want) {
			t.Errorf("%s has no section %s: %q", name, want, sections)
		}
	}
}
