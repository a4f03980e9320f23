package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// width is what help is wrapped to: it fits any terminal, and long lines read badly.
const width = 80

// Help returns the help of the program.
func (p *Program) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s.\n\nUsage: %s COMMAND [flags] [arguments]\n\n", p.Name, p.Short, p.Name)
	b.WriteString(wrap(p.Long, ""))
	b.WriteString("\nCommands:\n")
	var terms []Term
	for _, c := range p.Commands {
		terms = append(terms, Term{c.usage(), c.Short})
	}
	writeTerms(&b, terms)
	writeSections(&b, p.Sections)
	fmt.Fprintf(&b, "\nMore about a command: %s help COMMAND\n", p.Name)
	return b.String()
}

// HelpOf returns the help of a command.
func (p *Program) HelpOf(c *Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s %s\n\n%s.\n", p.Name, c.fullUsage(), c.Short)
	if c.Long != "" {
		b.WriteString("\n" + wrap(c.Long, ""))
	}
	if len(c.Flags) > 0 {
		b.WriteString("\nFlags:\n")
		var terms []Term
		for _, f := range c.Flags {
			terms = append(terms, Term{f.usage(), f.Help})
		}
		writeTerms(&b, append(terms, Term{"-h, --help", "show this help"}))
	}
	writeSections(&b, c.Sections)
	if len(c.Examples) > 0 {
		b.WriteString("\nExamples:\n")
		for _, e := range c.Examples {
			fmt.Fprintf(&b, "  # %s\n  %s\n", e.Text, e.Word)
		}
	}
	return b.String()
}

// usage is the command as the list of commands shows it.
func (c *Command) usage() string { return strings.TrimSpace(c.Name + " " + c.Args) }

func (c *Command) fullUsage() string {
	parts := []string{c.Name}
	if len(c.Flags) > 0 {
		parts = append(parts, "[flags]")
	}
	if c.Args != "" {
		parts = append(parts, c.Args)
	}
	return strings.Join(parts, " ")
}

// usage is "-w, --wait DUR".
func (f *Flag) usage() string {
	s := "    --" + f.Long
	if f.Short != 0 {
		s = fmt.Sprintf("-%c, --%s", f.Short, f.Long)
	}
	if f.Value != "" {
		s += " " + f.Value
	}
	return s
}

func writeSections(b *strings.Builder, sections []Section) {
	for _, s := range sections {
		fmt.Fprintf(b, "\n%s:\n", s.Title)
		writeTerms(b, s.Terms)
	}
}

// writeTerms writes words and their texts in two columns.
func writeTerms(b *strings.Builder, terms []Term) {
	const most = 26 // a longer word has its text on the next line
	column := 0
	for _, t := range terms {
		if n := utf8.RuneCountInString(t.Word); n <= most {
			column = max(column, n)
		}
	}
	indent := strings.Repeat(" ", column+4)
	for _, t := range terms {
		text := wrap(t.Text, indent)
		if n := utf8.RuneCountInString(t.Word); n <= column {
			text = text[min(len(text), n+2):]
		} else {
			b.WriteString("  " + t.Word + "\n" + text)
			continue
		}
		b.WriteString("  " + t.Word + text)
	}
}

// wrap breaks paragraphs into lines that begin with indent. Lines that begin with a space
// stay as they are.
func wrap(text, indent string) string {
	var b strings.Builder
	line := ""
	flush := func() {
		if line != "" {
			b.WriteString(indent + line + "\n")
		}
		line = ""
	}
	for raw := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if raw == "" || raw[0] == ' ' {
			flush()
			b.WriteString(strings.TrimRight(indent+raw, " ") + "\n")
			continue
		}
		for word := range strings.FieldsSeq(raw) {
			if line != "" && utf8.RuneCountInString(indent+line+word)+1 > width {
				flush()
			}
			if line != "" {
				line += " "
			}
			line += word
		}
	}
	flush()
	return b.String()
}
