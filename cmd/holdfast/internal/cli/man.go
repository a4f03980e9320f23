package cli

import (
	"fmt"
	"strings"
)

// A Page is a manual page in the form that man(1) reads.
type Page struct{ File, Text string }

// Man returns the manual pages: one of the program and one of each command.
func (p *Program) Man() []Page {
	pages := []Page{{p.Name + ".1", p.manProgram()}}
	for _, c := range p.Commands {
		name := p.Name + "-" + c.Name
		pages = append(pages, Page{name + ".1", p.manCommand(name, c)})
	}
	return pages
}

func (p *Program) manProgram() string {
	var b strings.Builder
	p.manHead(&b, p.Name, p.Short)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I COMMAND\n[flags] [arguments]\n", roff(p.Name))
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, p.Long)
	b.WriteString(".SH COMMANDS\n")
	for _, c := range p.Commands {
		manTerm(&b, Term{c.usage(), c.Short + "; see " + p.Name + "-" + c.Name + "(1)."})
	}
	manSections(&b, p.Sections)
	var see []string
	for _, c := range p.Commands {
		see = append(see, fmt.Sprintf(".BR %s (1)", roff(p.Name+"-"+c.Name)))
	}
	b.WriteString(".SH SEE ALSO\n" + strings.Join(see, " ,\n") + "\n")
	return b.String()
}

func (p *Program) manCommand(name string, c *Command) string {
	var b strings.Builder
	p.manHead(&b, name, c.Short)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(p.Name+" "+c.Name))
	if _, rest, ok := strings.Cut(c.fullUsage(), " "); ok {
		b.WriteString(roff(rest) + "\n")
	}
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, c.Short+".\n\n"+c.Long)
	if len(c.Flags) > 0 {
		b.WriteString(".SH OPTIONS\n")
		for _, f := range c.Flags {
			manTerm(&b, Term{strings.TrimSpace(f.usage()), f.Help + "."})
		}
	}
	manSections(&b, c.Sections)
	if len(c.Examples) > 0 {
		b.WriteString(".SH EXAMPLES\n")
		for _, e := range c.Examples {
			fmt.Fprintf(&b, "%s:\n.PP\n.RS 4\n.nf\n%s\n.fi\n.RE\n.PP\n", roff(e.Text), roff(e.Word))
		}
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(p.Name))
	return b.String()
}

// manHead has no date: pages that are built twice must be the same.
func (p *Program) manHead(b *strings.Builder, name, short string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" \"%s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(strings.ReplaceAll(roff(name), `\-`, "-")), roff(p.Name), roff(name), roff(short))
}

func manSections(b *strings.Builder, sections []Section) {
	for _, s := range sections {
		fmt.Fprintf(b, ".SH %s\n", strings.ToUpper(roff(s.Title)))
		for _, t := range s.Terms {
			manTerm(b, t)
		}
	}
}

func manTerm(b *strings.Builder, t Term) {
	fmt.Fprintf(b, ".TP\n.B %s\n", roff(t.Word))
	manText(b, t.Text)
}

// manText writes paragraphs; lines that begin with a space are shown as they are.
func manText(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if show := strings.HasPrefix(line, " "); show != verbatim {
			verbatim = show
			if show {
				b.WriteString(".PP\n.nf\n")
			} else {
				b.WriteString(".fi\n")
			}
		}
		switch {
		case line == "":
			b.WriteString(".PP\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

// roff escapes what has a meaning in a manual page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\&...`, "−", `\-`, "≥", `\(>=`, `"`, `\(dq`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
