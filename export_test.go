package holdfast

import "context"

// HeapOf returns the number of grants in the renewal heap of a client.
func HeapOf(c *Client) int { return len(c.renewals.All()) }

// HandOverLost hands the grant of a lease over to the next call, after the scheduler has lost it and
// before the local queue knows. It reports whether a call got it. Drop tells the queue.
func HandOverLost(l *Lease) (handed bool) {
	h := l.p.h
	h.c.renewals.Remove(h.g)
	_, handed = h.c.queue.Release(context.Background(), h.g, true)
	return handed
}

// Drop tells the local queue that the grant of a lease is lost.
func Drop(l *Lease) { l.p.h.c.queue.Drop(l.p.h.g) }
