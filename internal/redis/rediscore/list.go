package rediscore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	pageSize  = 100  // names, unless a query sets another number
	scanCount = 1000 // keys that a server examines in one step
	maxScans  = 100  // steps for a page, so that no call takes long on a server with many other keys
)

// List returns one page of the names that have holders or waiters: see store.Store. The names are in no
// order, may be on two pages, and a page that is not the last can be empty.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	if err := s.calls.EnterCall(ctx); err != nil {
		return page, err
	}
	defer s.calls.Exit()
	names := []string{q.Name}
	if q.Name == "" {
		if names, page.Next, err = s.scan(ctx, q.Prefix, q.Cursor, cmp.Or(max(q.Limit, 0), pageSize)); err != nil {
			return store.Page{}, err
		}
	}
	page.Locks, err = s.show(ctx, names)
	return page, err
}

// scan finds some names. A cursor consists of the number of a server and of its own cursor.
func (s *Store) scan(ctx context.Context, prefix, cursor string, limit int) (names []string, next string, err error) {
	server, at := 0, uint64(0)
	if cursor != "" {
		if fmt.Sscanf(cursor, "%d.%d", &server, &at); server < 0 || fmt.Sprintf("%d.%d", server, at) != cursor {
			return nil, "", fmt.Errorf("%w: cursor %.40q: pass the Next of the previous page, or nothing", store.ErrInvalid, cursor)
		}
	}
	pattern := s.pattern(prefix)
	servers, err := s.conn.Servers(ctx)
	if err != nil {
		return nil, "", s.explain(ctx, err)
	}
	for range maxScans {
		if server >= len(servers) {
			return names, "", nil
		}
		found, after, err := scanKeys(ctx, servers[server], at, pattern)
		if err != nil {
			return nil, "", s.explain(ctx, err)
		}
		for _, key := range found {
			if name, ok := s.nameOf(text(key)); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		if at = after; at == 0 {
			server++
		}
		if len(names) >= limit && server < len(servers) {
			break
		}
	}
	return names, fmt.Sprintf("%d.%d", server, at), nil
}

// scanKeys reads some of the matching keys of a server. Next is 0 after the last ones.
func scanKeys(ctx context.Context, server Server, cursor uint64, match string) (keys []any, next uint64, err error) {
	v, err := server.Do(ctx, "SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", strconv.Itoa(scanCount))
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", server.Addr, err)
	}
	reply := list(v)
	if len(reply) != 2 {
		return nil, 0, errRecord
	}
	next, err = strconv.ParseUint(text(reply[0]), 10, 64)
	return list(reply[1]), next, err
}

// show describes the names that have holders or waiters. It sends a page at a time, because a call that takes
// long counts as a sign that the server hangs.
func (s *Store) show(ctx context.Context, names []string) (locks []store.Lock, err error) {
	slices.Sort(names)
	for part := range slices.Chunk(slices.Compact(names), pageSize) {
		calls := make([]Call, len(part))
		for i, name := range part {
			calls[i] = Call{Script: showScript, Keys: s.keys(name), Args: []string{s.publish(), ""}}
		}
		for i, r := range s.runAll(ctx, calls) {
			if r.Err != nil {
				return nil, fmt.Errorf("list %q: %w", part[i], r.Err)
			}
			lock, err := parseLock(part[i], list(r.Value))
			if err != nil {
				return nil, err
			}
			if len(lock.Holders) > 0 || len(lock.Waiters) > 0 {
				locks = append(locks, lock)
			}
		}
	}
	return locks, nil
}

// parseLock parses the reply of show.lua.
func parseLock(name string, reply []any) (store.Lock, error) {
	lock := store.Lock{Name: name}
	if len(reply) != 3 {
		return lock, errRecord
	}
	now := micros(reply[0])
	for _, record := range list(reply[1]) {
		h, limit, err := parseHolder(text(record), now)
		if err != nil {
			return lock, err
		}
		lock.Holders, lock.Limit = append(lock.Holders, h), max(lock.Limit, limit)
	}
	slices.SortStableFunc(lock.Holders, func(a, b store.Holder) int { return cmp.Compare(b.Age, a.Age) })
	for _, record := range list(reply[2]) {
		w, limit, err := parseWaiter(text(record), now)
		if err != nil {
			return lock, err
		}
		lock.Waiters, lock.Limit = append(lock.Waiters, w), max(lock.Limit, limit)
	}
	return lock, nil
}
