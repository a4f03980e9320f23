package holdfast

// SlotsOf returns how many names the client is busy with.
func SlotsOf(c *Client) (n int) {
	for i := range c.slots.shards {
		sh := &c.slots.shards[i]
		sh.mu.Lock()
		n += len(sh.slots)
		if sh.spare != nil {
			n--
		}
		sh.mu.Unlock()
	}
	return n
}

// HeapOf returns how many grants the client looks after.
func HeapOf(c *Client) int {
	c.renewals.mu.Lock()
	defer c.renewals.mu.Unlock()
	return len(c.renewals.heap)
}
