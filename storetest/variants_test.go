package storetest_test

// A variant is a model with one bug, and the tests of the suite that must catch it.
type variant struct {
	bug    string
	bare   bool // on a model with no feature at all
	caught []string
}

var variants = []variant{
	{bug: "no heartbeat is declared", caught: []string{"capabilities are sound"}},

	{bug: "a held name is granted", caught: []string{"G1 exclusion/a held name is refused to every other identity"}},
	{bug: "a refusal names no holder", caught: []string{"G1 exclusion/a refusal tells who holds the name, since when and how much longer"}},
	{bug: "a refusal tells the TTL instead of what is left", caught: []string{"G1 exclusion/a refusal tells who holds the name, since when and how much longer"}},
	{bug: "it is checked first and granted later", caught: []string{
		"G1 exclusion/of many who ask at once exactly one is granted",
		"modes/permits asked for at once do not exceed the limit",
	}},
	{bug: "a held name is granted now and then", caught: []string{"G1 exclusion/holders that compete never overlap and their tokens grow"}},
	{bug: "all names are one lock", caught: []string{"G1 exclusion/different names do not exclude each other"}},
	{bug: "a release is forgotten", caught: []string{"G1 exclusion/a released name is free at once"}},

	{bug: "a TTL is forgotten", caught: []string{"G2 loss/a grant that nobody renews ends"}},
	{bug: "a TTL is cut to whole units", caught: []string{"G2 loss/a grant is never freed before its TTL as granted is over"}},
	{bug: "a grant expires too early", caught: []string{"G2 loss/a grant is never freed before its TTL as granted is over"}},
	{bug: "a renewal does not extend", caught: []string{"G2 loss/a renewal extends the grant"}},
	{bug: "a renewal extends by half", caught: []string{"G2 loss/a renewed grant is never freed before its new TTL is over, and then is"}},
	{bug: "a renewal never ends", caught: []string{"G2 loss/a renewed grant is never freed before its new TTL is over, and then is"}},
	{bug: "a grant can be renewed up to twice its TTL", caught: []string{"G2 loss/a grant renewed in time lives on and on"}},

	{bug: "a waiter is granted for the TTL of its last refusal", caught: []string{"takeover/a lease never outlives what the store keeps for it"}},

	{bug: "tokens are nanoseconds", caught: []string{"G3 fencing/tokens stay below 2^53"}},
	{bug: "a token is used again", caught: []string{
		"G3 fencing/tokens grow over release, on every connection",
		"G3 fencing/tokens grow over expiry",
	}},
	{bug: "tokens are counted per connection", caught: []string{
		"G3 fencing/tokens grow over release, on every connection",
		"G3 fencing/tokens of shared grants grow too",
	}},
	{bug: "tokens restart after a release", caught: []string{
		"G3 fencing/tokens grow over release, on every connection",
		"G3 fencing/tokens grow when every connection is closed and opened again",
		"G5 unknown/a grant whose answer was lost has a token above the blocks of earlier holders",
	}},
	{bug: "tokens restart after an expiry", caught: []string{"G3 fencing/tokens grow over expiry"}},
	{bug: "tokens restart after a grant given back", caught: []string{"G3 fencing/tokens grow over a grant given back"}},
	{bug: "tokens restart after a break", caught: []string{"G3 fencing/tokens grow over a break"}},
	{bug: "tokens restart after a closure", caught: []string{"G3 fencing/tokens grow over a closure"}},
	{bug: "blocks overlap", caught: []string{
		"G3 fencing/tokens grow when every connection is closed and opened again",
		"G3 fencing/blocks of tokens do not overlap",
	}},
	{bug: "stepping down changes the token", caught: []string{"G3 fencing/a step-down keeps the token, and the next one is greater"}},
	{bug: "a floor is ignored", caught: []string{"G3 fencing/a grant's token is above the floor that it asked for"}},
	{bug: "a renewal ignores its floor", caught: []string{"G3 fencing/a floor given with a renewal holds for the next block and the next grant"}},
	{bug: "a renewal reserves its block again", caught: []string{"G3 fencing/a block reserved by a renewal overlaps no other"}},
	{bug: "a renewal reserves though others are queued", caught: []string{"G3 fencing/a renewal reserves nothing while others are queued, but keeps its floor"}},
	{bug: "the highest token is not told", caught: []string{"G3 fencing/a refusal tells the highest token"}},

	{bug: "a release releases by name", caught: []string{
		"G4 identity/a release by another identity touches nothing",
		"G4 identity/a former holder cannot touch the next one",
		"G4 identity/an identity is known by its name",
	}},
	{bug: "a renewal is gone but extends the name", caught: []string{"G4 identity/a renewal by another identity is gone and extends nothing"}},
	{bug: "a renewal renews by name", caught: []string{
		"G4 identity/a renewal by another identity is gone and extends nothing",
		"G4 identity/a former holder cannot touch the next one",
		"G4 identity/an identity is known by its name",
	}},
	{bug: "leaving touches the name", caught: []string{"G4 identity/leaving under another identity touches nothing"}},
	{bug: "a break breaks by name", caught: []string{"G4 identity/a break by another identity touches nothing"}},
	{bug: "a second release is fine", caught: []string{
		"G4 identity/a second release is not held",
		"G4 identity/a release that comes after the expiry is not held",
	}},
	{bug: "a renewal revives", caught: []string{
		"G4 identity/a renewal that comes after the release revives nothing",
		"G4 identity/a renewal that comes after the expiry revives nothing",
	}},
	{bug: "a release takes a waiter out", caught: []string{"G4 identity/a waiter's identity is no grant"}},
	{bug: "a renewal of a waiter grants", caught: []string{"G4 identity/a waiter's identity is no grant"}},
	{bug: "a grant is bound to its connection", caught: []string{"G4 identity/a grant is known by its identity through any connection"}},

	{bug: "an identity that asks again gets a new token", caught: []string{
		"G5 unknown/the same identity asked again is the same grant",
		"G5 unknown/a waiter whose grant was not heard of asks again and has it",
	}},
	{bug: "an identity that asks again is refused", caught: []string{
		"G5 unknown/the same identity asked again is the same grant",
		"G5 unknown/a waiter whose grant was not heard of asks again and has it",
	}},
	{bug: "asking again tells the first block", caught: []string{"G5 unknown/asking again tells the newest block, whatever the floor"}},
	{bug: "asking again with a floor moves the token", caught: []string{"G5 unknown/asking again tells the newest block, whatever the floor"}},
	{bug: "asking again does not start the TTL anew", caught: []string{"G5 unknown/asking again starts the TTL anew"}},
	{bug: "leaving does not give back the grant", caught: []string{"G5 unknown/leaving gives back a grant that nobody heard of"}},
	{bug: "leaving nothing is an error", caught: []string{"G5 unknown/leaving is nil if there is nothing to undo"}},
	{bug: "a cancelled call spoils the connection", caught: []string{
		"G5 unknown/a call whose context has ended returns, and leaving undoes it",
		"G5 unknown/calls cut off at any moment break nothing and are undone",
	}},
	{bug: "calls ignore their context", caught: []string{"G5 unknown/a call whose context has ended returns, and leaving undoes it"}},

	{bug: "nobody is woken", caught: []string{"G6 waiting/a release wakes who waits"}},
	{bug: "a wake-up comes by the poll", caught: []string{"G6 waiting/a wake-up is pushed and does not come by the poll"}},
	{bug: "a change before Wait is lost", caught: []string{"G6 waiting/a change between refusal and Wait is not lost"}},
	{bug: "one Wait per connection", caught: []string{"G6 waiting/waits on one connection do not disturb each other"}},
	{bug: "Wait hides why it ended", caught: []string{"G6 waiting/Wait ends with its context"}},
	{bug: "Wait ignores its context", caught: []string{"G6 waiting/Wait ends with its context"}},
	{bug: "a refusal says to ask again too late", caught: []string{"G6 waiting/a refusal says when to ask again, and that is soon enough to keep the place"}},
	{bug: "a waiter does not see that the holder expired", caught: []string{
		"G6 waiting/an expired holder lets the next one in within Again",
		"keep/who waits gets in when the closure ends",
	}},
	{bug: "the last to come is the first to be served", caught: []string{
		"G6 waiting/twenty waiters on five connections are all served, in order",
		"G6 waiting/the first to come is the first to be served, across connections",
	}},
	{bug: "a try overtakes the queue", caught: []string{"G6 waiting/a try does not overtake the queue"}},
	{bug: "a try who is behind waiters is told of holders", caught: []string{"G6 waiting/a try does not overtake the queue"}},
	{bug: "a try is queued", caught: []string{"G6 waiting/a try leaves nothing queued"}},
	{bug: "asking again moves to the end", caught: []string{"G6 waiting/asking again keeps the place"}},
	{bug: "a grant does not count who waits", caught: []string{"G6 waiting/every answer tells how many wait"}},
	{bug: "a refusal counts the waiter itself", caught: []string{"G6 waiting/every answer tells how many wait"}},
	{bug: "a waiter who is granted stays queued", caught: []string{"G6 waiting/a waiter who is granted is no longer queued"}},
	{bug: "leaving leaves the waiter queued", caught: []string{
		"G6 waiting/a cancelled waiter leaves nothing queued",
		"listing/waiters are listed in order, the next one first",
	}},
	{bug: "leaving wakes nobody", caught: []string{
		"G6 waiting/a waiter who leaves when it is its turn wakes the next",
		"modes/a writer who leaves lets the readers behind it in",
		"modes/a big request who leaves lets the small one behind it in",
	}},
	{bug: "a dead waiter keeps its place", caught: []string{
		"G6 waiting/a dead waiter costs the next one heartbeat at most",
		"G6 waiting/a waiter who stopped asking starts again at the end",
		"G7 quiet/nothing is left of the dead when the next one has come and gone",
	}},
	{bug: "dead waiters add up", caught: []string{"G6 waiting/dead waiters do not add up"}},
	{bug: "a live waiter is dropped", caught: []string{"G6 waiting/a waiter who asks within Again keeps its place"}},

	{bug: "readers exclude each other", caught: []string{"modes/shared holders go together"}},
	{bug: "a writer does not wait for all readers", caught: []string{"modes/a writer waits for every reader"}},
	{bug: "a reader overtakes a writer who waits", caught: []string{"modes/a later reader does not overtake a writer who waits"}},
	{bug: "only the first waiter is woken", caught: []string{"modes/neighbouring readers are woken and go together"}},
	{bug: "a grant wakes no neighbour", caught: []string{"modes/a grant wakes the neighbour that it lets in"}},
	{bug: "a reader lives while others renew", caught: []string{
		"modes/a reader ends on its own though others renew",
		"modes/a permit's holder ends on its own though others renew",
	}},
	{bug: "permits exceed their limit", caught: []string{"modes/permits are granted up to the limit"}},
	{bug: "a small request overtakes a big one", caught: []string{"modes/a small request does not overtake a big one who waits"}},
	{bug: "a limit that differs is not named", caught: []string{"modes/different limits are invalid, and both are named"}},
	{bug: "different limits are accepted", caught: []string{"modes/different limits are invalid, and both are named"}},
	{bug: "shared and permits are refused, not invalid", caught: []string{"modes/shared and permits do not mix"}},
	{bug: "stepping down is forgotten", caught: []string{"modes/stepping down lets readers in and no writer"}},
	{bug: "stepping down wakes nobody", caught: []string{"modes/stepping down lets readers in and no writer"}},
	{bug: "exclusive does not mix with permits", caught: []string{
		"modes/exclusive mixes with permits and takes them all",
	}},
	{bug: "stepping down does not extend", caught: []string{"modes/stepping down gives the grant the TTL of its renewal"}},
	{bug: "a reader may become a writer", caught: []string{"modes/a reader cannot become a writer by renewing"}},

	{bug: "Keep is ignored", caught: []string{"keep/a closed name refuses, and tells the state and what is left"}},
	{bug: "a closed name is granted", caught: []string{
		"keep/a closed name refuses, and tells the state and what is left",
		"keep/a closure may be shorter than what was left of the grant",
	}},
	{bug: "a closure has the token 0", caught: []string{"keep/a closed name refuses, and tells the state and what is left"}},
	{bug: "a closure has the wrong state", caught: []string{"keep/a closed name refuses, and tells the state and what is left"}},
	{bug: "a closure ends with the grant's TTL", caught: []string{"keep/a closure outlives the grant's TTL, ends when it should and not before"}},
	{bug: "a closure never ends", caught: []string{
		"keep/a closure outlives the grant's TTL, ends when it should and not before",
		"keep/a closure may be shorter than what was left of the grant",
		"keep/who waits gets in when the closure ends",
	}},
	{bug: "closing wakes nobody", caught: []string{"keep/closing wakes who waits, so that they learn of it"}},
	{bug: "a closure can be released", caught: []string{"keep/a closure cannot be renewed, released or left"}},
	{bug: "a closure can be renewed", caught: []string{"keep/a closure cannot be renewed, released or left"}},
	{bug: "leaving reopens a closed name", caught: []string{"keep/a closure cannot be renewed, released or left"}},
	{bug: "a break does not end a closure", caught: []string{"keep/a break ends a closure and wakes who waits"}},
	{bug: "a break wakes nobody", caught: []string{
		"keep/a break ends a closure and wakes who waits",
		"listing/a broken grant is gone for its holder, and the next one gets in",
	}},
	{bug: "anybody can close", caught: []string{"keep/only the holder can close"}},
	{bug: "a shared grant can be done", caught: []string{"keep/done is for exclusive grants only"}},
	{bug: "a cooling reader keeps out all", caught: []string{"keep/a cooling reader keeps out writers and no readers"}},
	{bug: "cooling permits are free", caught: []string{"keep/cooling permits keep their weight and no more"}},
	{bug: "cooling permits close the name", caught: []string{"keep/cooling permits keep their weight and no more"}},

	{bug: "no owner is listed", caught: []string{"listing/a holder is listed with all that is known of it"}},
	{bug: "a renewal makes a grant younger", caught: []string{"listing/age grows, what is left falls, and a renewal raises only the latter"}},
	{bug: "a listing shows the first block", caught: []string{"listing/the token listed is the first of the newest block"}},
	{bug: "a listing shows one holder", caught: []string{"listing/a holder is listed whoever comes and goes beside it"}},
	{bug: "a listing is cut", caught: []string{"listing/shared holders are all listed"}},
	{bug: "no limit is listed", caught: []string{"listing/permits are listed with weight and limit"}},
	{bug: "a waiter is young when it asks again", caught: []string{"listing/waiters are listed in order, the next one first"}},
	{bug: "waiters are listed in reverse", caught: []string{"listing/waiters are listed in order, the next one first"}},
	{bug: "a closure is listed as held", caught: []string{"listing/closures are listed with their state"}},
	{bug: "free names are listed", caught: []string{"listing/what was released is not listed"}},
	{bug: "the dead are listed", caught: []string{"listing/the dead are not listed"}},
	{bug: "a name is taken as a prefix", caught: []string{"listing/a name is found exactly, and names by their prefix"}},
	{bug: "a page loses its last name", caught: []string{"listing/pages lose no name and repeat none"}},
	{bug: "a cursor is an offset", caught: []string{"listing/pages lose no name though others come and go"}},
	{bug: "a break does nothing", caught: []string{"listing/a broken grant is gone for its holder, and the next one gets in"}},
	{bug: "a break ends all holders", caught: []string{"listing/a break ends one of several holders"}},

	{bug: "names are cleaned like paths", caught: []string{"names/names that are alike are different locks, and each works"}},
	{bug: "names are folded by case", caught: []string{"names/names that are alike are different locks, and each works"}},
	{bug: "names are normalised", caught: []string{"names/names that are alike are different locks, and each works"}},
	{bug: "names lose trailing spaces", caught: []string{"names/names that are alike are different locks, and each works"}},
	{bug: "names are truncated", caught: []string{"names/names of 512 bytes are kept to the last byte"}},
	{bug: "names are listed in lower case", caught: []string{"names/hard names come back from a listing as they were"}},
	{bug: "a prefix is a pattern", caught: []string{"names/a prefix is no pattern"}},
	{bug: "texts are cut", caught: []string{"names/hard owners and metas come back as they were"}},

	{bug: "calls after Close work", caught: []string{"G7 quiet/calls after Close are closed"}},
	{bug: "Close does not end a Wait", caught: []string{
		"G7 quiet/Close ends a Wait",
		"G7 quiet/calls in flight when the store is closed finish or are closed",
	}},
	{bug: "Close ends the grants and waiters of all", caught: []string{"G7 quiet/closing one connection does not disturb another"}},
	{bug: "only a part of many is renewed", caught: []string{"G7 quiet/a thousand renewals in one call have an outcome each, in order"}},
	{bug: "outcomes are out of order", caught: []string{"G7 quiet/a thousand renewals in one call have an outcome each, in order"}},
	{bug: "a goroutine per grant", caught: []string{"G7 quiet/neither grants nor waiters cost goroutines"}},
	{bug: "a goroutine per waiter", caught: []string{"G7 quiet/neither grants nor waiters cost goroutines"}},
	{bug: "a goroutine outlives Close", caught: []string{"G7 quiet/Close ends what the store started"}},
	{bug: "something is left after a release", caught: []string{"G7 quiet/nothing is left when all have released and left"}},

	{bug: "an undeclared List is empty", bare: true, caught: []string{"undeclared/List and Break are refused"}},
	{bug: "an undeclared Keep is ignored", bare: true, caught: []string{"undeclared/a release with Keep is refused and releases nothing"}},
	{bug: "a place is made up", bare: true, caught: []string{"undeclared/no place is made up where there is no queue"}},
}
