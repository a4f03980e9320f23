package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// Header is the request header that carries a token, as a decimal number.
	Header = "Fencing-Token"

	// HeaderHighest is the response header of a refusal that carries the highest token seen.
	// It distinguishes a stale token from other reasons for status 412.
	HeaderHighest = "Fencing-Token-Highest"
)

// Handler returns a handler that calls next inside the gate of the resource that key returns, if the token of
// the request is not stale. Otherwise it replies in plain text without calling next:
//
//   - 428 Precondition Required: the request has no Fencing-Token header;
//   - 400 Bad Request: the header is not one number from 1 to 2^53-1, in decimal digits
//     without sign, space or leading zero;
//   - 412 Precondition Failed, with a Fencing-Token-Highest header: the token is stale;
//   - 503 Service Unavailable: the request's context ended while it waited for the gate.
//
// Next gets the token with [TokenFrom]. When a newer token arrives while next runs, the context of the older
// request is cancelled with a cause that matches ErrStale, and reads of its body fail, so that a client that
// stopped in the middle of its upload does not block the newer request. That waits until next returns,
// however long it takes, so next should stop.
//
// Key must return names of existing resources; see [Gates]. Wrap only routes that write.
func Handler(gates *Gates, key func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, status, err := tokenOf(r)
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), tokenKey{}, token))
		defer cancel(nil)
		overtaken := func(highest int64) {
			cancel(&StaleError{Token: token, Highest: highest})
			if r.Body != http.NoBody {
				// If w does not support it, the timeouts of the server apply.
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			}
		}
		gate := gates.Gate(key(r))
		v, err := gate.enter(r.Context(), token, overtaken)
		if err != nil {
			status := http.StatusServiceUnavailable
			text := "holdfast: gave up waiting for the work of an earlier fencing token to end: " + err.Error()
			if stale := new(StaleError); errors.As(err, &stale) {
				w.Header().Set(HeaderHighest, strconv.FormatInt(stale.Highest, 10))
				status, text = http.StatusPreconditionFailed, err.Error()
			}
			http.Error(w, text, status)
			return
		}
		defer gate.leave(v)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// tokenOf returns the token of a request, or an error and the status to reply with.
func tokenOf(r *http.Request) (token int64, status int, err error) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return 0, http.StatusPreconditionRequired, fmt.Errorf("holdfast: no %s header: acquire the lock of this resource and send the token of the lease", Header)
	case 1:
		token, err = parseToken(values[0])
	default:
		err = fmt.Errorf("holdfast: %w: %d %s headers: want one", store.ErrInvalid, len(values), Header)
	}
	return token, http.StatusBadRequest, err
}

// parseToken parses a token only as strconv.FormatInt formats it, so that no intermediary can read it as another
// number.
func parseToken(s string) (int64, error) {
	token, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(token, 10) != s {
		return 0, fmt.Errorf("holdfast: %w: %s %.40q: want the result of Lease.Token, in decimal digits only", store.ErrInvalid, Header, s)
	}
	return token, checkToken(token)
}

type tokenKey struct{}

// TokenFrom returns the token of a request that [Handler] admitted, given its context, or 0 for any other
// context, also nil. For the token of a lease see holdfast.TokenFrom.
func TokenFrom(ctx context.Context) (token int64) {
	if ctx != nil {
		token, _ = ctx.Value(tokenKey{}).(int64)
	}
	return token
}

// SetHeader sets the token of a request, also 0, which holdfast.TokenFrom returns for a context without a lease:
// the resource then refuses the request, which is better than an unguarded write.
func SetHeader(req *http.Request, token int64) {
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	req.Header.Set(Header, strconv.FormatInt(token, 10))
}
