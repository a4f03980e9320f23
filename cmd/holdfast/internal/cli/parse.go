package cli

import (
	"fmt"
	"strings"
)

// A UsageError is a mistake in the command line. It says what to write instead.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Parsed is a command line that was understood.
type Parsed struct {
	Command  *Command
	Operands []string
	Tail     []string // what follows "--", if the command takes that; nil without "--"
	Help     bool     // --help was given
}

// Parse reads a command line without the program's name. Flags may stand before and after
// operands, up to "--". Each flag writes its value where the table says. The error is a
// *UsageError.
func (p *Program) Parse(args []string) (Parsed, error) {
	if len(args) == 0 {
		return Parsed{}, usagef("no command; see: %s help", p.Name)
	}
	first := args[0]
	if first == "-h" || first == "--help" {
		return Parsed{Help: true}, nil
	}
	c := p.Find(first)
	switch {
	case c == nil && strings.HasPrefix(first, "-"):
		return Parsed{}, usagef("%q: flags come after the command, as in: %s run --help", first, p.Name)
	case c == nil:
		var names []string
		for _, c := range p.Commands {
			names = append(names, c.Name)
		}
		if near := nearest(first, names); near != "" {
			return Parsed{}, usagef("unknown command %q; did you mean: %s %s", first, p.Name, near)
		}
		return Parsed{}, usagef("unknown command %q; see: %s help", first, p.Name)
	}
	parsed := Parsed{Command: c}
	if err := c.parse(args[1:], &parsed); err != nil {
		return Parsed{}, usagef("%s: %s; see: %s %[1]s --help", c.Name, err, p.Name)
	}
	return parsed, nil
}

func (c *Command) parse(args []string, to *Parsed) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--" && c.Tail:
			to.Tail = append([]string{}, args...)
			args = nil
		case arg == "--":
			to.Operands = append(to.Operands, args...)
			args = nil
		case arg == "-h" || arg == "--help":
			to.Help = true
			return nil
		case strings.HasPrefix(arg, "--"):
			args, err = c.long(arg, args)
		case len(arg) > 1 && arg[0] == '-':
			args, err = c.short(arg[1:], args)
		default:
			to.Operands = append(to.Operands, arg)
		}
		if err != nil {
			return err
		}
	}
	switch n := len(to.Operands); {
	case n < c.Least:
		return usagef("%s is missing", c.Operands[n].Name)
	case n > len(c.Operands) && c.Tail:
		return usagef(`unexpected %q; write "--" in front of the command to run`, to.Operands[len(c.Operands)])
	case n > len(c.Operands):
		return usagef("unexpected %q", to.Operands[len(c.Operands)])
	}
	return nil
}

// long reads --flag, --flag=value or --flag value, and returns what is left of args.
func (c *Command) long(arg string, args []string) ([]string, error) {
	name, value, has := strings.Cut(arg[2:], "=")
	f := c.flag(func(f *Flag) bool { return f.Long == name })
	switch {
	case f == nil:
		var names []string
		for _, f := range c.Flags {
			names = append(names, f.Long)
		}
		if near := nearest(name, names); near != "" {
			return nil, usagef("unknown flag --%s; did you mean --%s", name, near)
		}
		return nil, usagef("unknown flag --%s", name)
	case f.Value == "" && has:
		return nil, usagef("--%s takes no value", name)
	case f.Value == "":
		return args, f.set("")
	case !has && len(args) == 0:
		return nil, usagef("--%s needs a value: %s", name, f.Value)
	case !has:
		value, args = args[0], args[1:]
	}
	return args, f.read("--"+name, value)
}

// short reads -a, -abc, -aVALUE or -a VALUE, and returns what is left of args.
func (c *Command) short(letters string, args []string) ([]string, error) {
	for letters != "" {
		letter := letters[0]
		letters = letters[1:]
		f := c.flag(func(f *Flag) bool { return f.Short != 0 && f.Short == letter })
		switch {
		case f == nil:
			return nil, usagef("unknown flag %q", "-"+string(rune(letter)))
		case f.Value == "":
			if err := f.set(""); err != nil {
				return nil, err
			}
			continue
		case letters != "":
			return args, f.read("-"+string(rune(letter)), strings.TrimPrefix(letters, "="))
		case len(args) == 0:
			return nil, usagef("-%c needs a value: %s", letter, f.Value)
		}
		return args[1:], f.read("-"+string(rune(letter)), args[0])
	}
	return args, nil
}

func (c *Command) flag(is func(*Flag) bool) *Flag {
	for _, f := range c.Flags {
		if is(f) {
			return f
		}
	}
	return nil
}

func (f *Flag) read(as, value string) error {
	if err := f.set(value); err != nil {
		return usagef("%s %.80q: %v", as, value, err)
	}
	return nil
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest returns the word that was most likely meant, or nothing if none is close.
func nearest(word string, words []string) string {
	best, least := "", 1+len(word)/3 // one slip in three letters, and one more
	for _, w := range words {
		if d := distance(word, w); d <= least && (best == "" || d < distance(word, best)) {
			best = w
		}
		if len(word) >= 2 && strings.HasPrefix(w, word) { // typed in part
			return w
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their neighbour to
// get from a to b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
