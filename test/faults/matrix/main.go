// Command matrix writes the page about faults from the records of hunts.
//
//	matrix PAGE FOLDER
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-lock/holdfast/test/faults"
)

const (
	begin = "<!-- matrix -->"
	end   = "<!-- end -->"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: matrix PAGE FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// write replaces the table in a page by the one of the records in a folder.
func write(page, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	var results []faults.Result
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r faults.Result
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		results = append(results, r)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the table: %s %s", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+"\n\n"+faults.Matrix(results)+"\n"+end+after), 0o644)
}
