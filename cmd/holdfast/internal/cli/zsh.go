package cli

import (
	"fmt"
	"strings"
)

func (p *Program) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, `#compdef %[1]s
# zsh completion for %[1]s
# Put it into a directory of $fpath as _%[1]s, or load it with: source <(%[1]s completion zsh)

_%[1]s_locks() {
    local -a names
    names=(${(f)"$(%[2]s 2>/dev/null)"})
    compadd -- $names
}

_%[1]s() {
    local -a commands
    commands=(
`, p.Name, p.names())
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "        %s\n", zshQuote(c.Name+":"+c.Short))
	}
	b.WriteString(`    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local cmd=$words[2]
    shift words
    ((CURRENT--))
    case $cmd in
`)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "    %s)\n        _arguments -s -S", c.Name)
		for _, f := range c.Flags {
			b.WriteString(" \\\n            " + f.zsh())
		}
		b.WriteString(" \\\n            '(- *)'{-h,--help}'[show help]'")
		for i, o := range c.Operands {
			optional := ":"
			if i >= c.Least {
				optional = "::"
			}
			b.WriteString(" \\\n            " + zshQuote(fmt.Sprintf("%d%s%s:%s", i+1, optional, o.Name, p.zshAction(o.Kind, o.Words))))
		}
		if c.Tail {
			b.WriteString(" \\\n            '*:::command:_normal'")
		}
		b.WriteString("\n        ;;\n")
	}
	fmt.Fprintf(&b, `    esac
}

if [[ $funcstack[1] == _%[1]s ]]; then
    _%[1]s "$@"
else
    compdef _%[1]s %[1]s
fi
`, p.Name)
	return b.String()
}

// zsh is the flag as _arguments wants it.
func (f *Flag) zsh() string {
	help := "[" + strings.NewReplacer("[", "(", "]", ")").Replace(f.Help) + "]"
	value := ""
	if f.Value != "" {
		value = ":" + f.Value + ":"
		if f.Words != nil {
			value += "(" + strings.Join(f.Words, " ") + ")"
		}
	}
	if f.Short == 0 {
		return zshQuote("--" + f.Long + equals(f) + help + value)
	}
	return fmt.Sprintf("'(-%c --%s)'{-%c,--%s%s}%s", f.Short, f.Long, f.Short, f.Long, equals(f), zshQuote(help+value))
}

// equals lets zsh complete --flag=value as well.
func equals(f *Flag) string {
	if f.Value != "" {
		return "="
	}
	return ""
}

func (p *Program) zshAction(kind Kind, words []string) string {
	switch {
	case words != nil:
		return "(" + strings.Join(words, " ") + ")"
	case kind == Lock:
		return "_" + p.Name + "_locks"
	case kind == Path:
		return "_files -/"
	}
	return ""
}

func zshQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
