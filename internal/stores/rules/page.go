package rules

import "github.com/holdfast-lock/holdfast/store"

const (
	// pageSize is how many names a page of a listing has by default: one or two screens of text.
	pageSize = 100

	// maxPage is the greatest number of names on a page.
	maxPage = 10_000
)

// PageSize returns how many names to return for a query.
func PageSize(q store.Query) int {
	if q.Limit <= 0 {
		return pageSize
	}
	return min(q.Limit, maxPage)
}

// PrefixEnd returns the first string after all names that start with a prefix, in the order of their
// bytes.
func PrefixEnd(prefix string) string {
	if prefix == "" {
		return "\xff" // no byte of UTF-8
	}
	end := []byte(prefix)
	end[len(end)-1]++
	return string(end)
}
