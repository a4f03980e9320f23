package rediscore

import (
	"slices"
	"testing"
)

// Programs of other versions use the same keys, so their names belong to the format: see name.lua.
func TestKeysStayTheSame(t *testing.T) {
	for _, test := range []struct {
		config Config
		want   []string
	}{
		{Config{}, []string{"holdfast:token", "holdfast:lock:order:42", "holdfast:records:order:42", "holdfast:ends:order:42", "holdfast:queue:order:42"}},
		{Config{Counters: QuorumCounters}, []string{"holdfast:754:token", "holdfast:lock:order:42", "holdfast:records:order:42", "holdfast:ends:order:42", "holdfast:queue:order:42"}},
		{Config{Cluster: true}, []string{"holdfast:{753}:token", "holdfast:{753}:lock:order:42", "holdfast:{753}:records:order:42", "holdfast:{753}:ends:order:42", "holdfast:{753}:queue:order:42"}},
	} {
		s := &Store{config: test.config}
		if got := s.keys("order:42"); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.config, got, test.want)
		}
	}
}
