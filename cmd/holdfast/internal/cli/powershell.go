package cli

import (
	"fmt"
	"strings"
)

func (p *Program) powershell() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# PowerShell completion for %[1]s
# Load it with: %[1]s completion powershell | Out-String | Invoke-Expression

Register-ArgumentCompleter -Native -CommandName %[1]s -ScriptBlock {
    param($word, $ast, $cursor)
    $commands = [ordered]@{
`, p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "        %s = %s\n", psQuote(c.Name), psQuote(c.Short))
	}
	b.WriteString("    }\n    $flags = @{\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "        %s = [ordered]@{\n", psQuote(c.Name))
		for _, f := range c.Flags {
			fmt.Fprintf(&b, "            %s = %s\n", psQuote("--"+f.Long), psQuote(f.Help))
		}
		b.WriteString("            '--help' = 'show help'\n        }\n")
	}
	b.WriteString("    }\n    $values = @{\n")
	for _, c := range p.Commands {
		for _, f := range c.Flags {
			if f.Words != nil {
				fmt.Fprintf(&b, "        %s = %s\n", psQuote(c.Name+" --"+f.Long), psList(f.Words))
			}
		}
		if len(c.Operands) > 0 && c.Operands[0].Words != nil {
			fmt.Fprintf(&b, "        %s = %s\n", psQuote(c.Name), psList(c.Operands[0].Words))
		}
	}
	var locks []string
	for _, c := range p.Commands {
		if len(c.Operands) > 0 && c.Operands[0].Kind == Lock {
			locks = append(locks, c.Name)
		}
	}
	fmt.Fprintf(&b, `    }
    $locks = %[2]s

    $words = @($ast.CommandElements | ForEach-Object { $_.ToString() })
    if ($words.Count -lt 2 -or ($words.Count -eq 2 -and $word -ne '')) {
        $commands.Keys | Where-Object { $_ -like "$word*" } | ForEach-Object {
            [System.Management.Automation.CompletionResult]::new($_, $_, 'Command', $commands[$_])
        }
        return
    }
    $command = $words[1]
    if ($words -contains '--') { return }
    $last = if ($word -eq '') { $words[-1] } else { $words[-2] }
    $found = $values["$command $last"]
    if (-not $found -and $word -like '-*') {
        $flags[$command].Keys | Where-Object { $_ -like "$word*" } | ForEach-Object {
            [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterName', $flags[$command][$_])
        }
        return
    }
    if (-not $found) { $found = $values[$command] }
    if (-not $found -and $locks -contains $command) { $found = @(%[1]s 2>$null) }
    $found | Where-Object { $_ -like "$word*" } | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
}
`, p.names(), psList(locks))
	return b.String()
}

func psQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func psList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = psQuote(w)
	}
	return "@(" + strings.Join(quoted, ", ") + ")"
}
