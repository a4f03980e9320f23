package wake

import "fmt"

// MaxQueue is how many requests can wait for a name on a store whose servers read the whole queue
// for each request that joins it.
const MaxQueue = 1000

// Crowded returns the error of a request that cannot be queued because MaxQueue requests wait.
func Crowded(name string) error {
	return fmt.Errorf("%d requests wait for %q, which is the most that can wait for a name; try again later, or let fewer clients wait for one name", MaxQueue, name)
}
