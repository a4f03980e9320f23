package pgstore_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

var (
	comments = regexp.MustCompile(`(\s*--.*|\s)*\n`)
	channel  = regexp.MustCompile(`"wake":"[^"]+"`)
)

// The functions belong to the format, because Migrate does not replace those of the same version.
func TestFormats(t *testing.T) {
	suites.Formats(t, func(t *testing.T) suites.FormatServer {
		p := server(t)
		p.Must("DROP SCHEMA IF EXISTS holdfast CASCADE")
		return suites.FormatServer{
			Open: func(t testing.TB) store.Store { return open(t, p.URL()) },
			Dump: func(t testing.TB) []string {
				schema, err := pgstore.Schema("")
				must(t, err)
				lines := []string{strings.TrimSpace(comments.ReplaceAllString(schema, "\n"))}
				for _, table := range []string{"names", "holders", "waiters", "ended"} {
					const query = `SELECT format('INSERT INTO holdfast.%[1]s SELECT * FROM json_populate_record(NULL::holdfast.%[1]s, %%L);', row_to_json(r)) FROM holdfast.%[1]s r ORDER BY r`
					for _, row := range p.Must(fmt.Sprintf(query, table)) {
						lines = append(lines, channel.ReplaceAllString(row[0], `"wake":"channel"`))
					}
				}
				return lines
			},
			Load: func(t testing.TB, lines []string) { p.Must(strings.Join(lines, "\n")) },
		}
	})
}
