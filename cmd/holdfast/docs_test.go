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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/store"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// golden compares got with a file, which -update writes.
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
		t.Errorf("%s has changed; if that is intended, run: go test -run '%s' -update .", path, t.Name())
	}
}

// visibleFlags returns the flags of a command, without --help.
func visibleFlags(cmd *cobra.Command) []string {
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
	return flags
}

func TestHelpDescribesEveryCommandAndFlag(t *testing.T) {
	s := newPlainSite(t)
	all := s.ok("help")
	for _, cmd := range newRootCommand().Commands() {
		name := cmd.Name()
		if !regexp.MustCompile(`\n  ` + name + ` +` + regexp.QuoteMeta(cmd.Short) + `\n`).MatchString(all) {
			t.Errorf("help does not list %s", name)
		}
		out := s.ok("help", name)
		if !strings.Contains(out, "Usage:\n  holdfast "+name) {
			t.Errorf("%s: help has no usage: %.40q", name, out)
		}
		for _, flag := range append(visibleFlags(cmd), "--help") {
			if !strings.Contains(out, flag) {
				t.Errorf("%s: help does not describe %s", name, flag)
			}
		}
		for line := range strings.SplitSeq(out+all, "\n") {
			if n := columns(line); n > 81 { // the wrapping of flags may exceed 80 by one
				t.Errorf("%s: a line of %d columns: %q", name, n, line)
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
}

func TestVersionIsPrinted(t *testing.T) {
	s := newSite(t)
	out := s.ok("version")
	if !regexp.MustCompile(`^holdfast \S.* \(go1\.\S+, \w+/\w+\)\n$`).MatchString(out) {
		t.Errorf("version: %q", out)
	}
	if out != s.ok("--version") {
		t.Error("version and --version differ")
	}
}

func TestDurationsMayBeSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "5": 5 * time.Second, "1.5": 1500 * time.Millisecond, ".25": 250 * time.Millisecond, "2.": 2 * time.Second,
		"1h30m": 90 * time.Minute, "10ms": 10 * time.Millisecond,
	} {
		var got durationValue
		if err := got.Set(text); err != nil || time.Duration(got) != want {
			t.Errorf("%q: %v, %v; want %v", text, time.Duration(got), err, want)
		}
	}
	for text, want := range map[string]string{
		"": "want a duration such as", "x": "want a duration such as", ".": "want a duration such as", "1.2.3": "want a duration such as",
		"1e9": "want a duration such as", "NaN": "want a duration such as", "Inf": "want a duration such as",
		"-1s": "negative", "-1": "want a duration such as", "99999999h": "want", strings.Repeat("9", 400): "want", "87601h": "want at most 87600h0m0s",
		strings.Repeat("9", 30): "want at most 87600h0m0s",
	} {
		got := durationValue(7)
		if err := got.Set(text); err == nil || !strings.Contains(err.Error(), want) || got != 7 {
			t.Errorf("%q: %v, %v; want %q", text, time.Duration(got), err, want)
		}
	}
}

// complete returns the completions of the last argument.
func (s *site) complete(args ...string) string {
	s.t.Helper()
	out := strings.Split(strings.TrimSpace(s.ok(append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)), "\n")
	if last := out[len(out)-1]; last != ":4" && last != ":16" { // no file names, or only directories
		return strings.Join(out, " ")
	}
	return strings.Join(out[:len(out)-1], " ")
}

func TestCompletionOffersCommandsFlagsValuesAndLocks(t *testing.T) {
	s := newPlainSite(t)
	s.ok("acquire", "job:a")
	s.ok("acquire", "job:b")
	other := "sqlite:" + s.path("other.db")
	s.ok("acquire", "--store", other, "elsewhere")
	for line, want := range map[string]string{
		"r":                                  "run renew release",
		"run --on":                           "--on-lost",
		"run --on-lost ":                     "term kill warn",
		"run --signal ":                      "TERM INT HUP QUIT USR1 USR2 ABRT KILL",
		"run --ttl ":                         "",
		"show --j":                           "--json",
		"show jo":                            "job:a job:b",
		"show job:a ":                        "",
		"ls ":                                "job:a job:b",
		"run -n job:":                        "job:a job:b",
		"run --store " + other + " ":         "elsewhere",
		"run --store foo:x ":                 "",
		"completion z":                       "zsh",
		"completion ":                        "bash zsh fish powershell",
		"man ":                               "",
		"run job:a -- ls -":                  ":0", // the shell completes file names
		"run job:a -c x -- basenam":          ":0",
		"once --keep 1h job:a -- ls --store": ":0",
	} {
		if got := s.complete(strings.Split(line, " ")...); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// The completion scripts come from cobra. This test checks that they work with the names of
// locks, which may contain a colon.
func TestBashCompletesNames(t *testing.T) {
	s := newSite(t)
	s.ok("acquire", "job:a")
	s.ok("acquire", "the lock")
	s.ok("acquire", "the:lock")
	for _, test := range []struct{ words, want string }{
		{`holdfast show job :`, "a"},
		{`holdfast show the`, "the:lock"}, // no name that needs quotes
		{`holdfast ru`, "run"},
	} {
		// The first lines stand in for the functions of the package bash-completion that the
		// script needs.
		script := fmt.Sprintf(`_init_completion() {
				words=(%s); cword=$((${#words[@]} - 1)); cur=${words[cword]}; prev=${words[cword-1]}
			}
			PATH=%s:$PATH; source <(holdfast completion bash)
			COMP_TYPE=9; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			__start_holdfast 2>/dev/null; printf '%%s\n' "${COMPREPLY[@]}"`,
			strings.ReplaceAll(test.words, " :", ":"), filepath.Dir(command), test.words)
		cmd := exec.Command("bash", "--norc", "-c", script)
		cmd.Env = s.env
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != test.want {
			t.Errorf("%s: %q, %v; want %q", test.words, out, err, test.want)
		}
	}
}

// Anybody who may take a lock chooses its name, and the completion of names must not let a name
// act on the command line of another user.
func TestCompletionOffersOnlyNamesThatShellsTakeAsTheyAre(t *testing.T) {
	s := newPlainSite(t)
	good := []string{"order:42", "a/b.c_d-e+f,g@h%i=j", "备份", "Größe2"}
	bad := []string{
		"`id`", "$(id)", "${HOME}", "$HOME", "a b", "a'b", `a"b`, `a\b`, "a;id", "a&id", "a|id", "a>b", "a<b", "a*", "a?", "a[b]", "{a,b}",
		"~root", "!!", "#a", "(a)", "^a", "=ls", "-n", "--store=redis://example.com", "a\u00a0b", "a\u2028b", "_activeHelp_ x",
	}
	for _, name := range append(slices.Clone(good), bad...) {
		s.ok("acquire", "--", name)
	}
	want := slices.Sorted(slices.Values(good))
	if got := slices.Sorted(slices.Values(strings.Fields(s.complete("show", "")))); !slices.Equal(got, want) {
		t.Errorf("completion offers %q, want %q", got, want)
	}
	for _, name := range bad {
		if quoted := shellQuote(name); quoted == name && name[0] != '-' {
			t.Errorf("shellQuote(%q) adds no quotes", name)
		}
	}
}

func TestEveryCommandHasAManualPage(t *testing.T) {
	s := newPlainSite(t)
	s.env = append(s.env, "SOURCE_DATE_EPOCH=1000000000")
	dir := s.path("man/man1")
	s.ok("man", dir)
	if s.ok("man") != s.read("man/man1/holdfast.1") {
		t.Error("man without a directory prints another page")
	}
	pages := map[string]*cobra.Command{"holdfast.1": newRootCommand()}
	for _, cmd := range newRootCommand().Commands() {
		pages["holdfast-"+cmd.Name()+".1"] = cmd
	}
	for page, cmd := range pages {
		text := s.read("man/man1/" + page)
		for _, want := range append(visibleFlags(cmd), `"Sep 2001"`, ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH SEE ALSO\n") {
			if !strings.Contains(text, want) && !strings.Contains(text, strings.ReplaceAll(want, "-", `\-`)) {
				t.Errorf("%s does not contain %q", page, want)
			}
		}
	}
	run := s.read("man/man1/holdfast-run.1")
	for _, want := range []string{"Exit codes:", "\n79 ", "\nHOLDFAST_TOKEN ", ".SH EXAMPLE\n"} {
		if !strings.Contains(run, want) {
			t.Errorf("holdfast-run.1 does not contain %q", want)
		}
	}
	p := s.run("man", s.path("man/man1/holdfast.1"))
	p.wantCode(74)
	p.wantErr("cannot write the pages")
}
