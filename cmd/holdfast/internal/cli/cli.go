// Package cli has one table of commands and flags, from which everything else follows:
// parsing, help, completion for four shells and man pages. What is in the table is
// documented everywhere, and what is not in it does not exist.
package cli

// A Program is a command line with its commands.
type Program struct {
	Name     string
	Short    string // what it is, in one line without a full stop
	Long     string // paragraphs, with empty lines between
	Commands []*Command
	Sections []Section // after the commands: environment, files, exit codes
}

// A Command is one thing that the program can do.
type Command struct {
	Name     string
	Args     string // for the usage line, such as "NAME -- CMD…"
	Short    string
	Long     string
	Flags    []*Flag
	Operands []Operand
	Least    int    // how many operands must be given
	Tail     bool   // takes a command line behind "--"
	Examples []Term // a command line, and what it does
	Sections []Section

	// Run does it and returns the exit code. Tail is nil if there was no "--".
	Run func(operands, tail []string) int
}

// An Operand is an argument that is not a flag.
type Operand struct {
	Name  string
	Kind  Kind
	Words []string
}

// Kind is what an operand or the value of a flag is, so that a shell can complete it.
type Kind uint8

const (
	Free Kind = iota // nothing that could be guessed, or one of Words
	Lock             // the name of a lock
	Path             // a file or directory
)

// A Section is a heading with terms that are explained.
type Section struct {
	Title string
	Terms []Term
}

// A Term is a word and what it means.
type Term struct{ Word, Text string }

// A Flag is an option of a command.
type Flag struct {
	Long  string
	Short byte   // 0 if there is none
	Value string // what stands for the value in help; empty if it takes none
	Help  string // without a full stop
	Words []string

	set func(string) error
}

// Bool returns a flag without a value.
func Bool(long string, short byte, to *bool, help string) *Flag {
	return &Flag{Long: long, Short: short, Help: help, set: func(string) error { *to = true; return nil }}
}

// Func returns a flag whose value set reads. Its error says what to write instead.
func Func(long string, short byte, value string, set func(string) error, help string) *Flag {
	return &Flag{Long: long, Short: short, Value: value, Help: help, set: set}
}

// String returns a flag whose value is any text.
func String(long string, short byte, value string, to *string, help string) *Flag {
	return Func(long, short, value, func(s string) error { *to = s; return nil }, help)
}

// OneOf returns a flag whose value is one of a few words.
func OneOf(long, value string, to *string, words []string, help string) *Flag {
	f := Func(long, 0, value, func(s string) error {
		for _, w := range words {
			if s == w {
				*to = s
				return nil
			}
		}
		return usagef("want %s", orList(words))
	}, help)
	f.Words = words
	return f
}

// Find returns the command of that name, or nil.
func (p *Program) Find(name string) *Command {
	for _, c := range p.Commands {
		if c.Name == name {
			return c
		}
	}
	return nil
}
