package redisstore

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// openAdvice says what to do about an error of the first connection that contains a word.
var openAdvice = []struct{ word, advice string }{
	{"WRONGPASS", wrongLogin},
	{"NOAUTH", wrongLogin},
	{"invalid password", wrongLogin},
	{"DB index is out of range", "the path of the URL is the number of the database, as in redis://HOST/0"},
	{"unknown command 'SENTINEL'", "this is a Redis server, not a Sentinel: write redis://HOST:PORT, or give the address of a Sentinel"},
	{"unknown message type: 72", "this looks like an HTTP server, not like Redis: check the port"}, // "HTTP/1.1 …"
}

const wrongLogin = "check the user and the password in the URL; a password without a user is written as redis://:PASSWORD@HOST"

// explain adds advice to the error of the first connection. The error is ErrInvalid if the URL must be
// changed, but not if the error may end by itself.
func explain(u *store.URL, err error) error {
	text := err.Error()
	for _, known := range openAdvice {
		if strings.Contains(text, known.word) {
			return fmt.Errorf("%w: %s: %s (%v)", store.ErrInvalid, u, known.advice, err)
		}
	}
	secure := strings.HasPrefix(u.Scheme, "rediss")
	switch {
	case strings.Contains(text, "No such master with that name"): // a Sentinel can learn of the name later
		return fmt.Errorf("%s: %w: the name after the hosts is the one in \"sentinel monitor\" of the Sentinels", u, err)
	case secure && strings.Contains(text, "deadline exceeded"):
		return fmt.Errorf("%s: %w: if the server speaks no TLS, write redis:// instead of rediss://", u, err)
	case !secure && (strings.Contains(text, "EOF") || strings.Contains(text, "connection reset")):
		return fmt.Errorf("%s: %w: if the server wants TLS, write rediss:// instead of redis://", u, err)
	}
	return fmt.Errorf("%s: %w", u, err)
}
