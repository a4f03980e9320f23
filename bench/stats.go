package main

import (
	"math/bits"
	"slices"
	"time"
)

// median returns the median of values and does not modify them.
func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the smallest value such that the fraction q of all values is not above it.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); q == 0.5 && n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// A histogram counts durations with a relative resolution of 1/16. Recording one takes a few
// nanoseconds.
type histogram struct{ counts [64 * 16]int64 }

func (h *histogram) note(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
}

func bucket(n uint64) int {
	if n < 16 {
		return int(n)
	}
	shift := bits.Len64(n) - 5
	return (shift+1)*16 + int(n>>shift)&15
}

// top returns the upper end of a bucket.
func top(i int) time.Duration {
	if i < 16 {
		return time.Duration(i)
	}
	shift := i/16 - 1
	return time.Duration((uint64(i%16+17) << shift) - 1)
}

func (h *histogram) add(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

func (h *histogram) quantile(q float64) time.Duration {
	var all, seen int64
	for _, n := range h.counts {
		all += n
	}
	for i, n := range h.counts {
		if seen += n; float64(seen) > q*float64(all) {
			return top(i)
		}
	}
	return 0
}
