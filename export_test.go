package holdfast

// NamesOf returns how many names the client is busy with.
func NamesOf(c *Client) int { return c.queue.Names() }

// HeapOf returns how many grants the client looks after.
func HeapOf(c *Client) int { return len(c.renewals.All()) }
