package fence

import (
	"cmp"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// maxDrain is how many bytes of the body of a refusal are read at most, so that the connection can be reused.
const maxDrain = 64 << 10

// A Transport is an http.RoundTripper that adds to each request the token of the innermost lease from which its
// context was derived (see holdfast.Lease.Context).
//
// If the context was not derived from a lease, it sends nothing and returns an error that matches
// holdfast.ErrInvalid. If the resource replies that the token is stale, as [Handler] does, it returns a
// *StaleError. It returns every other response unchanged.
type Transport struct {
	// Base sends the requests. If nil, http.DefaultTransport is used.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	token := holdfast.TokenFrom(req.Context())
	if token == 0 {
		if req.Body != nil {
			req.Body.Close() // as every RoundTripper must
		}
		return nil, fmt.Errorf("holdfast: %w: the request's context was not derived from a lease: make the request with the context of Client.Do or Lease.Context", store.ErrInvalid)
	}
	sent := req.Clone(req.Context()) // a RoundTripper must not change the request
	SetHeader(sent, token)
	resp, err := t.base().RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	if stale := staleOf(resp, token); stale != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		resp.Body.Close()
		return nil, stale
	}
	return resp, nil
}

// CloseIdleConnections calls the method of the same name of Base, if there is one.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

// staleOf returns an error if the response says that token is stale. A 412 without the header
// has another meaning.
func staleOf(resp *http.Response, token int64) error {
	if resp.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	highest, err := parseToken(resp.Header.Get(HeaderHighest))
	if err != nil || highest <= token {
		return nil
	}
	return &StaleError{Token: token, Highest: highest}
}
