package storetest_test

// A variant is a model with one bug, and the tests of the suite that must catch it. If there are
// none, Compare must find it.
type variant struct {
	bug    string
	bare   bool // the model has no features at all
	caught []string
	unseen string // why Compare cannot see the bug
}

// Why Compare cannot see a bug.
const (
	undeclared = "Compare uses no features that are not declared"
	quiet      = "Compare does not look at goroutines and at what is left on the server"
	closing    = "Compare closes connections only at its end"
	few        = "a sequence has few clients"
	texts      = "Compare uses ordinary names and short texts"
	oneByOne   = "the calls of a sequence are made one after the other"
	cancelled  = "only calls of Wait are cancelled"
)

var variants = []variant{
	{bug: "no heartbeat is declared", caught: []string{"capabilities are sound"}},

	{bug: "a refusal names no holder"},
	{bug: "a refusal reports the TTL instead of the remaining time"},
	{bug: "the check and the grant are not atomic", caught: []string{
		"G1 exclusion/exactly one of many concurrent requests is granted",
		"modes/concurrent requests for permits do not exceed the limit",
	}},
	{bug: "a held name is granted now and then", caught: []string{"G1 exclusion/competing holders never overlap, and their tokens grow"}},
	{bug: "a release is forgotten"},

	{bug: "a TTL is forgotten"},
	{bug: "a TTL is cut to whole units", caught: []string{"G2 loss/a grant lasts at least for its TTL"}},
	{bug: "a renewal extends by half"},

	{bug: "a waiter is granted for the TTL of its last refusal"},

	{bug: "tokens are nanoseconds"},
	{bug: "tokens are counted per connection"},
	{bug: "tokens restart after a release", caught: []string{
		"G3 fencing/tokens grow after all connections were closed and reopened",
		"G5 unknown/a grant whose reply was lost has a token above the blocks of earlier holders",
	}},
	{bug: "tokens restart after an expiry"},
	{bug: "blocks overlap", caught: []string{"G3 fencing/tokens grow after all connections were closed and reopened"}},
	{bug: "a downgrade changes the token"},
	{bug: "a floor is ignored"},
	{bug: "a renewal ignores its floor"},
	{bug: "a renewal reserves its block again"},

	{bug: "a release releases by name", caught: []string{"G4 identity/a former holder cannot affect the next one"}},
	{bug: "a renewal renews by name", caught: []string{"G4 identity/a former holder cannot affect the next one"}},
	{bug: "Leave releases by name"},
	{bug: "a break breaks by name"},
	{bug: "a second release succeeds"},
	{bug: "a release removes a waiter"},
	{bug: "a grant is bound to its connection"},

	{bug: "asking again returns the first block"},
	{bug: "asking again with a floor moves the token"},
	{bug: "asking again does not restart the TTL"},
	{bug: "a cancelled call is undone when it is repeated", unseen: cancelled, caught: []string{"G5 unknown/a call repeated after it was cancelled keeps its grant"}},
	{bug: "Leave does not release the grant"},
	{bug: "Leave without a grant is an error"},
	{bug: "one renewal in fifty returns Gone", caught: []string{"G5 unknown/concurrent renewals of one grant never find it gone"}},
	{bug: "a cancelled call spoils the connection", caught: []string{
		"G5 unknown/a call whose context has ended returns, and Leave undoes it",
		"G5 unknown/calls cancelled at any moment can be undone",
	}},
	{bug: "a request is executed after its Leave", caught: []string{"G5 unknown/requests cancelled at any moment under load keep nobody waiting"}},
	{bug: "calls ignore their context", unseen: cancelled, caught: []string{"G5 unknown/a call whose context has ended returns, and Leave undoes it"}},

	{bug: "nobody is woken"},
	{bug: "a wake-up comes by the poll", caught: []string{"G6 waiting/a wake-up is pushed and does not rely on polling"}},
	{bug: "only the last holder wakes a waiter", unseen: few, caught: []string{"G6 waiting/a wake-up is pushed when any holder of permits leaves"}},
	{bug: "a change before Wait is lost", caught: []string{"G6 waiting/a change between refusal and Wait is not lost"}},
	{bug: "one Wait per connection", caught: []string{"G6 waiting/calls of Wait on one connection are independent"}},
	{bug: "Wait hides why it ended", caught: []string{"G6 waiting/Wait ends with its context"}},
	{bug: "Wait ignores its context", caught: []string{"G6 waiting/Wait ends with its context"}},
	{bug: "a refusal says to ask again too late"},
	{bug: "a waiter does not see that the holder expired", caught: []string{"G6 waiting/the next waiter is granted within Again after an expiry"}},
	{bug: "waiters are served in reverse order", caught: []string{"G6 waiting/twenty waiters on five connections are served in order"}},
	{bug: "a request without Queue overtakes the queue"},
	{bug: "a refusal because of waiters names holders"},
	{bug: "a request without Queue is queued"},
	{bug: "asking again moves to the end"},
	{bug: "a grant reports no waiters"},
	{bug: "a refusal counts the waiter itself"},
	{bug: "Leave keeps the waiter queued"},
	{bug: "a dead waiter keeps its place", caught: []string{"G7 quiet/nothing is left of a dead client after the next holder"}},
	{bug: "dead waiters add up", caught: []string{"G6 waiting/the delays of dead waiters do not add up"}},
	{bug: "a live waiter is dropped"},
	{bug: "an invalid request fails the waiters", caught: []string{"G6 waiting/invalid requests do not affect a waiter"}},

	{bug: "readers exclude each other"},
	{bug: "only the first waiter is woken"},
	{bug: "a grant does not wake the next waiter"},
	{bug: "a reader lives while others renew"},
	{bug: "permits exceed their limit"},
	{bug: "the error does not name both limits"},
	{bug: "shared and permits are refused, not invalid"},
	{bug: "a downgrade is ignored"},
	{bug: "a reader may become a writer"},
	{bug: "an invalid renewal fails the others", caught: []string{
		"modes/an invalid renewal does not affect the others",
		"modes/a renewal with a floor above all tokens does not affect the others",
	}},

	{bug: "Keep is ignored"},
	{bug: "a kept record has the wrong state"},
	{bug: "a kept record ends with the grant's TTL"},
	{bug: "closing wakes nobody"},
	{bug: "a name that is done wakes one waiter"},
	{bug: "a kept record can be released"},
	{bug: "Leave reopens a closed name"},
	{bug: "any identity can close a name"},
	{bug: "a shared grant can be done"},
	{bug: "cooling permits are free"},

	{bug: "no owner is listed"},
	{bug: "a renewal makes a grant younger"},
	{bug: "a listing shows the first block"},
	{bug: "a listing shows one holder", caught: []string{"listing/a holder is always listed while other holders come and go"}},
	{bug: "a listing is truncated", unseen: few, caught: []string{"listing/all shared holders are listed"}},
	{bug: "no limit is listed"},
	{bug: "a waiter is young when it asks again"},
	{bug: "waiters are listed in reverse"},
	{bug: "free names are listed"},
	{bug: "expired holders and waiters are listed"},
	{bug: "a name is taken as a prefix"},
	{bug: "a page loses its last name"},
	{bug: "a cursor is an offset", unseen: oneByOne, caught: []string{"listing/pages list every name while others change"}},
	{bug: "a break ends all holders"},

	{bug: "names are cleaned like paths", unseen: texts, caught: []string{"names/similar names are different locks"}},
	{bug: "names are folded by case", caught: []string{"names/similar names are different locks"}},
	{bug: "names are normalised", unseen: texts, caught: []string{"names/similar names are different locks"}},
	{bug: "names lose trailing spaces", caught: []string{"names/similar names are different locks"}},
	{bug: "names are truncated", unseen: texts, caught: []string{"names/similar names are different locks"}},
	{bug: "names are listed in lower case", caught: []string{"names/a listing returns unusual names unchanged"}},
	{bug: "a prefix is a pattern", unseen: texts, caught: []string{"names/a prefix is not a pattern"}},
	{bug: "owners and metas are truncated", unseen: texts, caught: []string{"names/unusual owners and metas are returned unchanged"}},

	{bug: "calls after Close work", unseen: closing, caught: []string{"G7 quiet/calls after Close return ErrClosed"}},
	{bug: "Close is reported as a lost connection", unseen: closing, caught: []string{
		"G7 quiet/calls in flight when the store is closed finish or are closed",
		"G7 quiet/calls after Close return ErrClosed",
	}},
	{bug: "Close does not end a Wait", unseen: closing, caught: []string{"G7 quiet/Close ends a Wait"}},
	{bug: "Close ends the grants and waiters of all", unseen: closing, caught: []string{
		"G7 quiet/closing one connection does not affect another",
		"G7 quiet/a grant that was returned while the store was being closed lasts",
	}},
	{bug: "only some of many renewals are executed", unseen: few, caught: []string{"G7 quiet/a thousand renewals in one call return their outcomes in order"}},
	{bug: "outcomes are out of order", caught: []string{"G7 quiet/a thousand renewals in one call return their outcomes in order"}},
	{bug: "a goroutine per grant", unseen: quiet, caught: []string{"G7 quiet/grants and waiters need no goroutines"}},
	{bug: "a goroutine per waiter", unseen: quiet, caught: []string{"G7 quiet/grants and waiters need no goroutines"}},
	{bug: "a goroutine outlives Close", unseen: quiet, caught: []string{"G7 quiet/Close ends a Wait"}},
	{bug: "something is left after a release", unseen: quiet, caught: []string{"G7 quiet/nothing is left after all grants are released and all waiters left"}},

	{bug: "an undeclared List is empty", unseen: undeclared, bare: true, caught: []string{"undeclared/List and Break are refused"}},
	{bug: "an undeclared Keep is ignored", unseen: undeclared, bare: true, caught: []string{"undeclared/a release with Keep is refused and releases nothing"}},
	{bug: "a store without a queue reports a place", bare: true},
}
