package holdfast

import "github.com/holdfast-lock/holdfast/store"

// These types are declared in package store. Programs that use locks need not import it.
type (
	Mode         = store.Mode         // the way in which a name is held
	State        = store.State        // whether a Holder is a live grant or a kept record, which keeps the name closed
	ID           = store.ID           // the identity of one grant
	Info         = store.Lock         // one name, without the client's prefix, with its holders and its queue
	Holder       = store.Holder       // a grant of a name, or a kept record, which keeps the name closed
	Waiter       = store.Waiter       // a client that waits for a name
	Features     = store.Features     // a set of optional abilities of a store; the option Require checks for them
	Capabilities = store.Capabilities // what a store supports
)

// The modes of a lock.
const (
	ModeExclusive = store.Exclusive // by one holder alone
	ModeShared    = store.Shared    // together with other shared holders
	ModePermits   = store.Permits   // some of a limited number of permits
)

// The states of a Holder.
const (
	StateHeld    = store.Held    // a live grant
	StateDone    = store.Done    // closed by Once: the work is done
	StateCooling = store.Cooling // closed until MinHold is over
)

// The features of stores.
const (
	FeatureShared    = store.FeatureShared    // RLock and Downgrade
	FeaturePermits   = store.FeaturePermits   // Semaphore
	FeatureQueue     = store.FeatureQueue     // waiters are served in order of arrival across processes
	FeatureKeep      = store.FeatureKeep      // Once and MinHold
	FeatureList      = store.FeatureList      // List, Inspect and Break
	FeatureProcesses = store.FeatureProcesses // exclusion between processes of one host
	FeatureHosts     = store.FeatureHosts     // exclusion between hosts
	FeatureDurable   = store.FeatureDurable   // locks and tokens survive a restart of the server
	FeatureFailover  = store.FeatureFailover  // exclusion and tokens survive the loss of a server
	FeaturePush      = store.FeaturePush      // waiters are woken; every store with FeatureQueue does so too
)

// ParseID parses an ID in the format of its String method. The error matches ErrInvalid.
func ParseID(s string) (ID, error) { return store.ParseID(s) }
