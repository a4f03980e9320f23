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

	// HeaderHighest is the response header of a refusal, with the highest token seen. It
	// tells a stale token from any other reason for a 412.
	HeaderHighest = "Fencing-Token-Highest"
)

// Handler serves a request with next, inside the gate of the resource that key names, if
// its token is not stale. Else it answers in plain text, and next is not called:
//
//   - 428 Precondition Required: the request has no Fencing-Token header;
//   - 400 Bad Request: the header is not one number from 1 to 2^53-1, in decimal digits
//     without sign, space or leading zero;
//   - 412 Precondition Failed, with a Fencing-Token-Highest header: the token is stale;
//   - 503 Service Unavailable: the request's context ended before its turn came.
//
// Next finds the token with [TokenFrom]. When a newer token arrives while next runs, the
// newer request waits for it, as in [Gate.Do]. So that a client which stopped in the
// middle of its upload does not hold it up, the older request's context is then cancelled
// with a cause that matches ErrStale, and reading its body fails. Next should stop; it
// need not hurry, because the newer request waits however long it takes.
//
// Key must return the names of resources that exist; see [Gates]. Wrap only the routes
// that write.
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
				// A writer that cannot do it leaves the wait to the server's own timeouts.
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			}
		}
		gate := gates.Gate(key(r))
		v, err := gate.enter(r.Context(), token, overtaken)
		if err != nil {
			refuse(w, err)
			return
		}
		defer gate.leave(v)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func refuse(w http.ResponseWriter, err error) {
	var stale *StaleError
	if errors.As(err, &stale) {
		w.Header().Set(HeaderHighest, strconv.FormatInt(stale.Highest, 10))
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
		return
	}
	http.Error(w, "holdfast: gave up waiting for the work of an earlier fencing token to end: "+err.Error(), http.StatusServiceUnavailable)
}

// tokenOf reads the token of a request. If it cannot, the status says how to answer.
func tokenOf(r *http.Request) (token int64, status int, err error) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return 0, http.StatusPreconditionRequired, fmt.Errorf("holdfast: no %s header: acquire the lock of this resource and send the token of the lease", Header)
	case 1:
		if token, err = parseToken(values[0]); err == nil {
			return token, 0, nil
		}
		return 0, http.StatusBadRequest, err
	}
	return 0, http.StatusBadRequest, fmt.Errorf("holdfast: %w: %d %s headers: want one", store.ErrInvalid, len(values), Header)
}

// parseToken reads a token as strconv.FormatInt writes it and in no other spelling, so
// that nothing on the way can read another number.
func parseToken(s string) (int64, error) {
	token, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(token, 10) != s {
		return 0, fmt.Errorf("holdfast: %w: %s %.40q: want what Lease.Token returned, in decimal digits only", store.ErrInvalid, Header, s)
	}
	return token, checkToken(token)
}

type tokenKey struct{}

// TokenFrom returns the token of the request that a handler behind [Handler] serves, 0 if
// ctx is not the context of one. For the token of a lease see holdfast.TokenFrom.
func TokenFrom(ctx context.Context) int64 {
	token, _ := ctx.Value(tokenKey{}).(int64)
	return token
}

// SetHeader puts a token on a request. Zero, which holdfast.TokenFrom returns for a
// context without a lease, is put on it too: the resource then refuses it, which is
// better than to write unguarded.
func SetHeader(req *http.Request, token int64) {
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	req.Header.Set(Header, strconv.FormatInt(token, 10))
}
