package cli

import (
	"strings"
	"testing"
	"time"
)

// options is what the flags of the test's program write to.
type options struct {
	yes, no bool
	text    string
	n       int
	d       time.Duration
	given   bool
	word    string
}

func testProgram(o *options) *Program {
	return &Program{Name: "prog", Commands: []*Command{
		{
			Name: "go", Operands: []Operand{{Name: "NAME"}, {Name: "MORE"}}, Least: 1, Tail: true,
			Flags: []*Flag{
				Bool("yes", 'y', &o.yes, ""), Bool("no", 'N', &o.no, ""), String("text", 't', "TEXT", &o.text, ""),
				Int("number", 'n', "N", &o.n, nil, 0, 9, ""), Duration("time", 0, &o.d, &o.given, ""),
				OneOf("word", "WORD", &o.word, []string{"a", "b", "c"}, ""),
			},
		},
		{Name: "plain", Operands: []Operand{{Name: "X"}}},
		{Name: "gone"},
	}}
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		line     string
		want     options
		operands string
		tail     string // "none" without "--"
	}{
		{"go a", options{}, "a", "none"},
		{"go a --", options{}, "a", ""},
		{"go a -- b -y", options{}, "a", "b -y"},
		{"go -y a -N -- --", options{yes: true, no: true}, "a", "--"},
		{"go -yN a", options{yes: true, no: true}, "a", "none"},
		{"go -yt x a", options{yes: true, text: "x"}, "a", "none"},
		{"go -tx a", options{text: "x"}, "a", "none"},
		{"go -t=x a", options{text: "x"}, "a", "none"},
		{"go --text=a=b a", options{text: "a=b"}, "a", "none"},
		{"go --text --yes a", options{text: "--yes"}, "a", "none"},
		{"go --text= a", options{}, "a", "none"},
		{"go a - -n7", options{n: 7}, "a -", "none"},
		{"go --time 1.5 a", options{d: 1500 * time.Millisecond, given: true}, "a", "none"},
		{"go --time 0 a", options{given: true}, "a", "none"},
		{"go --word b a", options{word: "b"}, "a", "none"},
		{"plain -- -y", options{}, "-y", "none"},
	} {
		var o options
		p, err := testProgram(&o).Parse(strings.Split(test.line, " "))
		if err != nil {
			t.Errorf("%q: %v", test.line, err)
			continue
		}
		tail := "none"
		if p.Tail != nil {
			tail = strings.Join(p.Tail, " ")
		}
		if o != test.want || strings.Join(p.Operands, " ") != test.operands || tail != test.tail {
			t.Errorf("%q: %+v, operands %q, tail %q", test.line, o, p.Operands, tail)
		}
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for line, want := range map[string]string{
		"":                                       "no command; see: prog help",
		"og":                                     "did you mean: prog go",
		"zzz":                                    `unknown command "zzz"; see: prog help`,
		"-y":                                     "flags come after the command",
		"go":                                     "NAME is missing",
		"go a b c":                               `unexpected "c"; write "--" in front`,
		"plain a b":                              `unexpected "b"; see: prog plain --help`,
		"go --yse a":                             "did you mean --yes",
		"go --xxxxxx a":                          "unknown flag --xxxxxx;",
		"go -x a":                                `unknown flag "-x"`,
		"go --yes=1 a":                           "--yes takes no value",
		"go a --text":                            "--text needs a value: TEXT",
		"go a -t":                                "-t needs a value: TEXT",
		"go a -n x":                              `-n "x": want a number from 0 to 9`,
		"go a -n 10":                             "want a number from 0 to 9",
		"go a --time x":                          "want a time such as",
		"go a --time .":                          "want a time such as",
		"go a --time -1s":                        "want no negative time",
		"go a --time 1e9":                        "want a time such as",
		"go a --time 1e9h":                       "want a time such as",
		"go a --word d":                          "want a, b or c",
		"go a --time=NaN":                        "want a time such as",
		"go a --time=Inf":                        "want a time such as",
		"go a --time " + strings.Repeat("9", 30): "want at most",
		"go a --time 99999999h":                  "want",
	} {
		var args []string
		if line != "" {
			args = strings.Split(line, " ")
		}
		_, err := testProgram(new(options)).Parse(args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func TestHelpIsAskedForAnywhereBeforeTheTail(t *testing.T) {
	for _, line := range []string{"-h", "--help", "go --help", "go -h", "go a --help"} {
		if p, err := testProgram(new(options)).Parse(strings.Split(line, " ")); err != nil || !p.Help {
			t.Errorf("%q: %+v, %v", line, p, err)
		}
	}
	if p, err := testProgram(new(options)).Parse([]string{"go", "a", "--", "--help"}); err != nil || p.Help {
		t.Errorf("behind --: %+v, %v", p, err)
	}
}

func TestDurationsAreThoseOfFlockToo(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "5": 5 * time.Second, "1.5": 1500 * time.Millisecond, ".25": 250 * time.Millisecond, "2.": 2 * time.Second,
		"1h30m": 90 * time.Minute, "10ms": 10 * time.Millisecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("go\x00-yt\x00x\x00--\x00z")
	f.Fuzz(func(t *testing.T, line string) {
		p, err := testProgram(new(options)).Parse(strings.Split(line, "\x00"))
		if err == nil && p.Command == nil && !p.Help {
			t.Errorf("%q: nothing to do, and no error", line)
		}
	})
}
