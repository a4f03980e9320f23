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

	"github.com/holdfast-lock/holdfast/internal/tools/must"
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
	must.Main("matrix", func() { write(os.Args[1], os.Args[2]) })
}

// write replaces the tables of stores and of other libraries in a page by those of a folder's records.
func write(page, folder string) {
	var stores, others []faults.Result
	for _, file := range must.Get(filepath.Glob(filepath.Join(folder, "*.json"))) {
		var r faults.Result
		if err := json.Unmarshal(must.Get(os.ReadFile(file)), &r); err != nil {
			must.Fail("%s: %w", file, err)
		}
		if r.Library == "" {
			stores = append(stores, r)
		} else {
			others = append(others, r)
		}
	}
	text := string(must.Get(os.ReadFile(page)))
	for _, table := range []struct {
		mark    string
		results []faults.Result
	}{{begin, stores}, {peers, others}} {
		before, rest, found := strings.Cut(text, table.mark)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			must.Fail("%s: no place for the table: %s %s", page, table.mark, end)
		}
		text = before + table.mark + "\n\n" + faults.Matrix(table.results) + "\n" + end + after
	}
	must.OK(os.WriteFile(page, []byte(text), 0o644))
}
