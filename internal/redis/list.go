package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// pageSize is how many names List returns unless asked for another number.
	pageSize = 100

	// maxPage bounds a page, whatever was asked for.
	maxPage = 10_000

	// A server looks at scanCount keys at once, for well under a millisecond; a page ends
	// after scanMost such steps even if it found nothing, so that no call takes long on a
	// server with many other keys.
	scanCount = 1000
	scanMost  = 100
)

// List reads who holds and who waits: see store.Store. Names come in no order, and may come
// twice. A page can be empty and yet not be the last.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.calls.Leave()
	if q.Name != "" {
		locks, err := s.show(ctx, []string{q.Name})
		return store.Page{Locks: locks}, err
	}
	limit := min(q.Limit, maxPage)
	if limit <= 0 {
		limit = pageSize
	}
	names, next, err := s.scan(ctx, q.Prefix, q.Cursor, limit)
	if err != nil {
		return store.Page{}, err
	}
	locks, err := s.show(ctx, names)
	return store.Page{Locks: locks, Next: next}, err
}

// scan finds some names. A cursor is the number of a server and its own cursor.
func (s *Store) scan(ctx context.Context, prefix, cursor string, limit int) (names []string, next string, err error) {
	server, at := 0, uint64(0)
	if cursor != "" {
		a, b, _ := strings.Cut(cursor, ".")
		n, err1 := strconv.Atoi(a)
		u, err2 := strconv.ParseUint(b, 10, 64)
		if err1 != nil || err2 != nil || n < 0 {
			return nil, "", fmt.Errorf("%w: cursor %.40q: want the Next of the page before, or none", store.ErrInvalid, cursor)
		}
		server, at = n, u
	}
	pattern := s.keys.pattern(prefix)
	for range scanMost {
		found, after, servers, err := s.conn.Scan(ctx, server, at, pattern, scanCount)
		if err != nil {
			return nil, "", s.explain(ctx, err)
		}
		for _, key := range found {
			if name, ok := s.keys.name(key); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		at = after
		if at == 0 {
			if server++; server >= servers {
				return names, "", nil
			}
		}
		if len(names) >= limit {
			break
		}
	}
	return names, fmt.Sprintf("%d.%d", server, at), nil
}

// show reads names, and leaves out those that nobody holds or waits for.
func (s *Store) show(ctx context.Context, names []string) ([]store.Lock, error) {
	slices.Sort(names)
	names = slices.Compact(names)
	calls := make([]Call, len(names))
	for i, name := range names {
		calls[i] = Call{Script: showScript, Keys: s.keys.all(s.keys.group(name), name), Args: []string{s.publish(), ""}}
	}
	var locks []store.Lock
	for i, out := range s.evalAll(ctx, calls, nil) {
		if out.Err != nil {
			return nil, out.Err
		}
		lock, err := shown(names[i], out.Value)
		if err != nil {
			return nil, err
		}
		if len(lock.Holders) > 0 || len(lock.Waiters) > 0 {
			locks = append(locks, lock)
		}
	}
	return locks, nil
}

// shown reads the answer of show.lua.
func shown(name string, v Value) (store.Lock, error) {
	lock := store.Lock{Name: name}
	if len(v.List) != 3 {
		return lock, errRecord
	}
	now := time.Duration(v.List[0].Int) * time.Microsecond
	for _, record := range v.List[1].List {
		h, limit, err := parseHolder(record.Text, now)
		if err != nil {
			return lock, err
		}
		lock.Holders = append(lock.Holders, h)
		lock.Limit = max(lock.Limit, limit)
	}
	slices.SortStableFunc(lock.Holders, func(a, b store.Holder) int { return cmp.Compare(b.Age, a.Age) })
	for _, record := range v.List[2].List {
		w, limit, err := parseWaiter(record.Text, now)
		if err != nil {
			return lock, err
		}
		lock.Waiters = append(lock.Waiters, w)
		lock.Limit = max(lock.Limit, limit)
	}
	return lock, nil
}
