package rediscore

import "strconv"

// floors returns the call that runs floors.lua, for stores with several counters.
func (s *Store) floors(calls []*plainCall) Call {
	keys := make([]string, 1, 1+2*len(calls))
	args := make([]string, 1, 1+3*len(calls))
	args[0] = strconv.Itoa(len(calls))
	for _, c := range calls {
		keys = append(keys, s.lockKey(c.name))
		if c.ttl > 0 {
			args = append(args, c.record, millis(c.ttl), decimal(c.floor))
		} else {
			args = append(args, c.record, "", "")
		}
	}
	keys[0] = keys[1]
	for _, c := range calls {
		if c.ttl > 0 {
			keys = append(keys, s.counter(c.name))
		}
	}
	return Call{Script: floorsScript, Keys: keys, Args: args}
}
