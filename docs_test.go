package holdfast_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	reference = regexp.MustCompile(`\]\[([\w-]+)\]`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInID   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the IDs that a renderer gives the headings of a page.
func anchors(text string) map[string]bool {
	ids := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		ids[strings.ReplaceAll(notInID.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return ids
}

func TestLinksInDocumentsHaveATarget(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".md"):
			return nil
		}
		pages++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", path, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if text, err := os.ReadFile(target); err != nil || !anchors(string(text))[anchor] {
				t.Errorf("%s: %s has no heading %q", path, file, anchor)
			}
		}
		for _, m := range reference.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
			if !strings.Contains(string(text), "\n["+m[1]+"]: https://") {
				t.Errorf("%s: the link [%s] is not defined", path, m[1])
			}
		}
		return nil
	})
	if err != nil || pages < 10 {
		t.Errorf("%d pages: %v", pages, err)
	}
}

var (
	level    = regexp.MustCompile("(?m)^(#+) ")
	language = regexp.MustCompile("(?m)^```([a-z]+)$")
	row      = regexp.MustCompile(`(?m)^\|`)
	picture  = regexp.MustCompile(`!\[[^]]*\]\(([^)]*)\)`)
)

// outline returns the structure that a page and its translation must have in common.
func outline(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	text := string(data)
	var b strings.Builder
	for _, m := range language.FindAllStringSubmatch(text, -1) {
		b.WriteString(m[1] + " ")
	}
	text = codeBlock.ReplaceAllString(text, "")
	for _, m := range level.FindAllStringSubmatch(text, -1) {
		b.WriteString(m[1] + " ")
	}
	for _, m := range picture.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "://") { // badges
			b.WriteString(m[1] + " ")
		}
	}
	fmt.Fprintf(&b, "and %d rows", len(row.FindAllString(text, -1)))
	return b.String()
}

func TestTranslationsHaveTheOutlineOfTheirOriginals(t *testing.T) {
	for original, translation := range map[string]string{
		"README.md":        "README.zh-CN.md",
		"docs/choosing.md": "docs/choosing.zh-CN.md",
	} {
		if want, got := outline(t, original), outline(t, translation); got != want {
			t.Errorf("%s has\n%s\nand %s has\n%s", translation, got, original, want)
		}
	}
}
