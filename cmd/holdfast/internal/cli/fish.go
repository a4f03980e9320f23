package cli

import (
	"fmt"
	"strings"
)

func (p *Program) fish() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# fish completion for %[1]s
# Load it with: %[1]s completion fish | source

complete -c %[1]s -f
`, p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", p.Name, c.Name, fishQuote(c.Short))
	}
	for _, c := range p.Commands {
		in := "__fish_seen_subcommand_from " + c.Name
		if c.Tail {
			in += "; and not contains -- -- (commandline -opc)"
		}
		in = fishQuote(in)
		for _, f := range c.Flags {
			fmt.Fprintf(&b, "complete -c %s -n %s -l %s", p.Name, in, f.Long)
			if f.Short != 0 {
				fmt.Fprintf(&b, " -s %c", f.Short)
			}
			if f.Value != "" {
				b.WriteString(" -x")
			}
			if f.Words != nil {
				b.WriteString(" -a " + fishQuote(strings.Join(f.Words, " ")))
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuote(f.Help))
		}
		fmt.Fprintf(&b, "complete -c %s -n %s -s h -l help -d 'show help'\n", p.Name, in)
		if len(c.Operands) > 0 {
			switch o := c.Operands[0]; {
			case o.Words != nil:
				fmt.Fprintf(&b, "complete -c %s -n %s -a %s\n", p.Name, in, fishQuote(strings.Join(o.Words, " ")))
			case o.Kind == Lock:
				fmt.Fprintf(&b, "complete -c %s -n %s -a %s\n", p.Name, in, fishQuote("("+p.names()+" 2>/dev/null)"))
			case o.Kind == Path:
				fmt.Fprintf(&b, "complete -c %s -n %s -a %s\n", p.Name, in, fishQuote("(__fish_complete_directories)"))
			}
		}
		if c.Tail {
			fmt.Fprintf(&b, "complete -c %s -n %s -F -a %s\n", p.Name,
				fishQuote("__fish_seen_subcommand_from "+c.Name+"; and contains -- -- (commandline -opc)"),
				fishQuote("(__fish_complete_command)"))
		}
	}
	return b.String()
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
