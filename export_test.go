package holdfast

// NamesOf returns the number of names in the local queue of a client.
func NamesOf(c *Client) int { return c.queue.Names() }

// HeapOf returns the number of grants in the renewal heap of a client.
func HeapOf(c *Client) int { return len(c.renewals.All()) }
