package main

import (
	"regexp"
	"strings"
)

// readme holds the commands and the program that the README tells users to run.
type readme struct {
	get     []string // packages after "go get"
	install []string // packages with versions after "go install"
	program string   // main.go
}

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	section = regexp.MustCompile(`(?ms)^## Install$(.*?)(^## |\z)`)
)

// parseReadme reads the commands in the code blocks of the Install section, and the first
// complete program.
func parseReadme(text string) (r readme) {
	install := section.FindStringSubmatch(text)
	if install == nil {
		fail(`README.md: no section "## Install"`)
	}
	for _, block := range fence.FindAllStringSubmatch(install[1], -1) {
		if block[1] != "sh" {
			continue
		}
		for line := range strings.Lines(block[2]) {
			code, _, _ := strings.Cut(line, "#")
			switch words := strings.Fields(code); {
			case len(words) == 0:
			case len(words) == 3 && words[0] == "go" && words[1] == "get":
				r.get = append(r.get, words[2])
			case len(words) == 3 && words[0] == "go" && words[1] == "install":
				r.install = append(r.install, words[2])
			default:
				fail("README.md: Install: %q is neither go get PACKAGE nor go install PACKAGE@latest", strings.TrimSpace(line))
			}
		}
	}
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] == "go" && strings.HasPrefix(block[2], "package main\n") {
			r.program = block[2]
			return r
		}
	}
	fail("README.md: no code block with a complete program (package main)")
	return r
}
