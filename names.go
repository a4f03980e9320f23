package holdfast

import "github.com/holdfast-lock/holdfast/store"

// These types are declared in package store. Programs that use locks need not import it.
type (
	// Mode is the way in which a name is held.
	Mode = store.Mode

	// State says whether a Holder is a live grant or a kept record, which keeps the name closed.
	State = store.State

	// ID is the identity of one grant.
	ID = store.ID

	// Info describes one name with its holders and its queue. Its Name does not include the
	// client's prefix.
	Info = store.Lock

	// A Holder describes a grant of a name, or a kept record, which keeps the name closed.
	Holder = store.Holder

	// A Waiter describes a client that waits for a name.
	Waiter = store.Waiter

	// Features is a set of optional abilities of a store. The option Require checks for them.
	Features = store.Features

	// Capabilities describes what a store supports.
	Capabilities = store.Capabilities
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
