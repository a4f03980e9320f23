package suites

import (
	"strings"
	"sync"
)

// A Text is a buffer that can be read while it is written, such as a log.
type Text struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds to the text.
func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

// String returns what was written so far.
func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}
