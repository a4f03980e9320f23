package cli

import (
	"fmt"
	"strings"
)

// Shells are the shells that Completion knows.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// Completion returns the script that teaches a shell to complete the program.
func (p *Program) Completion(shell string) string {
	switch shell {
	case "bash":
		return p.bash()
	case "zsh":
		return p.zsh()
	case "fish":
		return p.fish()
	case "powershell":
		return p.powershell()
	}
	return ""
}

// names is the command that prints the names of locks, for shells to complete.
func (p *Program) names() string { return p.Name + " ls --names" }

func (p *Program) commandNames() []string {
	var names []string
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	return names
}

// forms returns the flag as it can be typed: "-w --wait".
func (f *Flag) forms() []string {
	forms := []string{"--" + f.Long}
	if f.Short != 0 {
		forms = append([]string{"-" + string(rune(f.Short))}, forms...)
	}
	return forms
}

func (c *Command) allForms() []string {
	var all []string
	for _, f := range c.Flags {
		all = append(all, f.forms()...)
	}
	return append(all, "--help")
}

func (p *Program) bash() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion for %[1]s
# Load it with: source <(%[1]s completion bash)

_%[1]s() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]} i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W '%[2]s' -- "$cur")
        return
    fi
`, p.Name, strings.Join(p.commandNames(), " "))
	for _, c := range p.Commands {
		if c.Tail {
			fmt.Fprintf(&b, `    if [[ $cmd == %s ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [[ ${COMP_WORDS[i]} == -- ]]; then
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((i + 1))
                elif ((i + 1 == COMP_CWORD)); then
                    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                fi
                return
            fi
        done
    fi
`, c.Name)
		}
	}
	b.WriteString("    case $cmd:$prev in\n")
	for _, c := range p.Commands {
		var free []string
		for _, f := range c.Flags {
			var patterns []string
			for _, form := range f.forms() {
				patterns = append(patterns, c.Name+":"+form)
			}
			switch {
			case f.Words != nil:
				fmt.Fprintf(&b, "    %s)\n        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n        return\n        ;;\n", strings.Join(patterns, " | "), strings.Join(f.Words, " "))
			case f.Value != "":
				free = append(free, patterns...)
			}
		}
		if len(free) > 0 {
			fmt.Fprintf(&b, "    %s)\n        return\n        ;;\n", strings.Join(free, " | "))
		}
	}
	b.WriteString("    esac\n    case $cmd:$cur in\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "    %s:-*)\n        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n        ;;\n", c.Name, strings.Join(c.allForms(), " "))
	}
	for _, c := range p.Commands {
		if len(c.Operands) == 0 {
			continue
		}
		o := c.Operands[0]
		switch {
		case o.Words != nil:
			fmt.Fprintf(&b, "    %s:*)\n        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n        ;;\n", c.Name, strings.Join(o.Words, " "))
		case o.Kind == Path:
			fmt.Fprintf(&b, "    %s:*)\n        mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")\n        ;;\n", c.Name)
		case o.Kind == Lock:
			fmt.Fprintf(&b, "    %s:*)\n        _%s_locks\n        ;;\n", c.Name, p.Name)
		}
	}
	fmt.Fprintf(&b, `    esac
}

# Names may have colons, which bash takes for the ends of words: only what follows the last
# of them is to be offered.
_%[1]s_locks() {
    local line=${COMP_LINE:0:COMP_POINT} word name
    word=${line##* }
    while IFS= read -r name; do
        if [[ $name == "$word"* && $name != *[[:space:]]* ]]; then
            if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then
                name=${name#"${word%%:*}:"}
            fi
            COMPREPLY+=("$name")
        fi
    done < <(%[2]s 2>/dev/null)
}

complete -F _%[1]s %[1]s
`, p.Name, p.names())
	return b.String()
}
