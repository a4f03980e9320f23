package mysqlstore

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

var comments = regexp.MustCompile(`(\s*--.*|\s)*\n`)

func TestFormats(t *testing.T) {
	suites.Formats(t, func(t *testing.T) suites.FormatServer {
		db := connectTo(t, nil)
		rows := func(t testing.TB, table string) (lines []string) {
			rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table+" ORDER BY 1, 2, 3")
			must(t, err)
			defer rows.Close()
			columns, err := rows.Columns()
			values, into := make([]string, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			for err == nil && rows.Next() {
				err = rows.Scan(into...)
				for i, v := range values {
					if values[i] = "'" + v + "'"; strings.ContainsFunc(v, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
						values[i] = fmt.Sprintf("X'%x'", v)
					}
				}
				lines = append(lines, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s);", table, strings.Join(columns, ", "), strings.Join(values, ", ")))
			}
			must(t, err)
			return lines
		}
		return suites.FormatServer{
			Open: func(t testing.TB) store.Store { return newIn(t, db) },
			Dump: func(t testing.TB) (lines []string) {
				schema, err := Schema("")
				must(t, err)
				lines = append(lines, strings.TrimSpace(comments.ReplaceAllString(schema, "\n")))
				return append(append(lines, rows(t, "holdfast_names")...), rows(t, "holdfast_claims")...)
			},
			Load: func(t testing.TB, lines []string) { mustExec(t, db, strings.Join(lines, "\n")) },
		}
	})
}
