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
	peers = "<!-- peers -->"
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

// write replaces the tables of stores and of other libraries in a page by those of a folder's records.
func write(page, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	var stores, others []faults.Result
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r faults.Result
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if r.Library == "" {
			stores = append(stores, r)
		} else {
			others = append(others, r)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	changed, err := replace(string(text), begin, faults.Matrix(stores))
	if err == nil {
		changed, err = replace(changed, peers, faults.Matrix(others))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(changed), 0o644)
}

// replace replaces the table after a mark.
func replace(page, mark, table string) (string, error) {
	before, rest, found := strings.Cut(page, mark)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("no place for the table: %s %s", mark, end)
	}
	return before + mark + "\n\n" + table + "\n" + end + after, nil
}
