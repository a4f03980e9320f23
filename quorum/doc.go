// Package quorum keeps locks on a majority of independent stores. It is the Redlock algorithm
// with a fencing token, per-node timeouts, repair and delayed restart.
//
// A quorum of N nodes, each a [store.Store] on a server of its own, survives the failure of any N
// - majority of them: with 3 nodes one, with 5 nodes two. The nodes know nothing of each other.
// Only exclusive locks are supported: see "Modes" below.
//
// # Assumptions
//
//   - All clients have the same list of nodes, or lists that differ by one node: majorities of those
//     have a node in common, too.
//   - At most N - majority nodes are faulty at the same time. A node is faulty while it does not
//     answer, after a restart that lost data until the restart delay is over, and after its clock
//     jumped or it lost data in another way until all grants that existed at that time are over.
//   - If the clock of a node jumps ahead, or the node loses data without a restart, it has not voted
//     for a lease that does not have the votes of all nodes yet. A lease usually has all votes after
//     10 ms and three round trips. It gets the vote of a node that does not answer then, or has
//     voted for another request that is about to be refused, after a renewal.
//   - The clocks of client and nodes run at the same speed, except for a drift of 1 percent. The
//     time of day does not matter: a client measures with its monotonic clock, a node counts the
//     TTL from when it received the request.
//   - A holder does not act after its lease has ended, or the resource checks the token.
//
// Tokens grow as long as any two majorities have a node in common that still has the tokens that
// it recorded. A node that lost its data grants higher tokens nevertheless if its counter follows
// its clock, as that of Redis does, and the clocks of the nodes differ by less than the restart
// delay.
//
// # Messages and state
//
// A client sends only the calls of the store contract to a node, and those of [Passer] if all nodes
// implement it. All messages about one grant carry its identity. For a name, a node has at most one
// grant (identity, first and last token, expiry) and a counter, which may be shared with other names:
//
//	Acquire(id, floor, n)  A live grant of id is returned as it is, and its TTL starts again.
//	                       If another identity has a live grant, the request is refused.
//	                       Otherwise the node grants the tokens first..last with
//	                       first > max(counter, floor), and sets counter = last. The node may
//	                       choose a higher first, and fewer tokens than n.
//	Renew(id, floor, n)    If id has a live grant: its TTL starts again, and with n > 0 it gets
//	                       a new block as above; counter = max(counter, floor). Otherwise: gone.
//	Release(id), Leave(id) The grant of id ends. The counter stays.
//	Pass(id, token, note)  If id has a live grant with that token: it ends, and the first waiter is
//	                       granted the name and gets the note, if the waiter wants one token and
//	                       sent its last request before id was granted the name. Otherwise:
//	                       nothing changes.
//	Rename(id, to, token)  A live grant of id is that of another identity from then on, its TTL
//	                       starts again, and its tokens are not below token.
//
// A client keeps for each identity and node a vote: none, asked, granted (first, last, recorded),
// refused or failed. "Recorded" is a lower bound of the node's counter, known from its replies:
// the last token of its block, or a higher floor that it acknowledged.
//
// # Acquire
//
//  1. The client notes the time, chooses a proposal p, and sends Acquire(id, p-1, n) to as many
//     nodes as are needed, in an order that depends on the name. The other nodes are asked as
//     soon as these have answered without a decision, or one of them takes several times as long
//     as usual. While a node fails or is slow, all nodes are asked at once. Every call to a node
//     has a deadline of its own.
//  2. Only grants of nodes that are old enough count (rule Young). Let C be the counting grants.
//     If |C| < majority, nothing is granted (rule Majority): the request is refused if a majority
//     of nodes answered, and has failed otherwise.
//  3. Let t be the majority-th smallest first token in C, and Q = {i in C : first(i) <= t}. The
//     token of the lease is t, never less than the first token of a node in Q (rule Above).
//  4. The block t..e counts if a majority of nodes in Q have recorded e or more, while they held
//     the grant (rule Recorded). In the common case all nodes granted exactly p, and that is
//     true after one round trip.
//  5. Otherwise the client asks the nodes that were not asked yet. If that does not help it
//     sends Renew(id, f, n) to all nodes of C, with f a little above everything that was recorded
//     in Q: each chooses a token above f, usually the same one. Then steps 3 and 4 are repeated.
//  6. If that did not help after three attempts with growing f, because requests for other
//     names were served in between, the client sends Renew(id, t+n-1, 0) to the nodes of Q, which
//     only raises their counters. That cannot conflict with anything. It does so at once if a node
//     chose no tokens, because other requests are queued at it.
//  7. The lease is valid for TTL, counted from step 1 (rule Validity). Nodes are asked for a
//     TTL that is longer by the drift, TTL/100 + 2 ms.
//
// As soon as the outcome is known the call returns. Nodes that have not answered by then are
// stragglers. If the request was granted, a straggler's grant is kept as a further vote. If it
// was refused, all votes are given back with Leave, that of a straggler when it arrives. The same is
// done if it failed, and a node refused it or does not count. If it failed otherwise, nothing is
// done, because the contract requires the caller to repeat the request or to call Leave. For the
// same reason a request that waits does not send a Leave to a node that is failing: a later attempt
// asks that node again. A request that is repeated while its lease is valid never gives votes back:
// if it is refused, it fails.
//
// All messages of one identity to one node that create or end its vote are sent one after the
// other: each one after the previous one was answered or has timed out. Once a Leave or Release
// has timed out, grants and renewals of that node do not count for that identity (rule Order).
// Otherwise a late Leave of a first attempt could end a vote that a second attempt counts. A vote
// that could not be given back ends with its TTL. An identity must not be used again after its
// caller released it or left.
//
// The proposal is p = max(highest token seen + 1, estimate of the nodes' counters), where the
// estimate grows by one per microsecond since a node last chose a token itself. It only decides
// how often a second round is needed. The client's time of day is never used.
//
// # Renew, release, repair
//
// A renewal goes to all nodes. It is extended if a majority extended it, gone if so many nodes
// have lost the vote they gave that no majority is left, and unknown otherwise (rule
// RenewMajority). Only nodes that answered the request for their vote count: another node may have
// the vote of an earlier attempt of the same identity, which is being given back (rule Voted). With
// tokens it follows steps 3 to 6. A new block is above the previous one, because two majorities
// intersect.
//
// Nodes that do not have the grant get it later, with the lease's tokens. Nodes that were not
// asked before get it 10 ms after the lease was granted, or when the store is closed. Nodes that
// lost it in a restart get it after a renewal. This is done only while the lease is valid and not
// gone (rule Repair), because a further vote then excludes only requests that are excluded
// anyway. If the reply arrives after the lease has ended, the vote is given back. It is also given
// back if the nodes that voted before have lost the lease meanwhile, because another client released
// or broke it. One of them is asked after each repair. If it has lost its vote, all are asked, and as
// many must have lost it as for a renewal (rule Gone): one node alone may have restarted.
//
// A release goes to all nodes that may have a vote, and waits for those that answer in time. It
// has succeeded if a majority no longer has the grant. Nodes that did not confirm it are sent a
// Leave in the background, until their votes have expired. With Keep a majority must have the
// closure. Nodes without a vote get it first, while the lease is valid, so that all nodes have
// the closure.
//
// A Break that cannot reach a node with a vote may be undone by the holder's next renewal if the
// lease had not been renewed before. List shows that.
//
// # Delayed restart
//
// A node that restarted may have lost grants that were not written to its disk, and would vote
// for a second holder. So the grants of a node do not count until its server has been up for
// longer than the largest TTL in use (rule Young); all grants that it has lost are over by then.
// A node store that implements [Restarter] returns the uptime of its server. It is asked again
// whenever it had to make a new connection. If the server is another one than before, it is
// assumed to have started after the last reply of the previous server, whatever its clock says.
// Renewals at a young node count, because it extends only a grant that it has.
//
// # Waiting
//
// A waiter is queued at one node, the bell of the name: the first node that is not down, in an
// order that depends on the name and on the names of the nodes, and is the same for all clients.
// The bell wakes the waiter by a push. In case a push is lost, the waiter also polls, with a
// bounded and jittered interval. For a second after a request of this client was refused or found
// waiters, the name counts as contended: then a request asks the bell alone at first, without a
// proposal. When the bell has granted it, the request asks the other nodes for the token that the
// bell chose. A bell that pushes grants, as Redis does, grants the request with the wake-up, so that
// a turn takes one round trip to the other nodes. So there is usually one candidate at a time. If
// the other nodes were ahead of the bell's token, the new holder raises the counter of the bell in
// the background, so that the next turn takes one round trip again.
//
// If votes are split nevertheless, the request that has the vote of the first node in the order
// of the name that answered is the candidate: it asks the other nodes again until the deadline of
// the call, after random pauses that double. All others give their votes back at once, and queue at
// the first node that refused them. If clients disagree about which nodes answer there may be
// several candidates; they give up at that deadline, and make their next attempts after random
// pauses that grow.
//
// Order of arrival is best effort. It is that of the bell's queue while clients agree about the
// bell, except that a request that does not wait (TryLock) and a first request that finds the
// other nodes free may be served in between. If the bell goes on refusing a waiter, the waiter also
// asks the other nodes, about once in half a heartbeat: a client that died may have left a vote at
// the bell only.
//
// # Passing votes on
//
// A hand-off of a contended name would move the votes of a majority of the nodes. If all nodes
// implement [Passer], only the vote of the bell moves. A request that the bell grants while others
// wait, and that wants one token, asks all other nodes for their votes under an identity of its own,
// the baton, with a block of tokens and a TTL of at most 2 s. The lease has the bell's vote under the
// identity of the request and the other votes under that of the baton.
//
// When the holder releases the name within 10 ms, it calls Pass at the bell and nothing else. The
// note has the identity of the baton, its next and last token, its TTL, and how much time has been
// spent since the first request for its votes. The next holder has the bell's vote under its own
// identity, and the votes of the baton. It uses the next token. (Rule Passed.)
//
//   - Votes are passed on only if all other nodes gave their votes to the baton, they are healthy,
//     no call about them is unanswered, a token is left that a majority of them recorded, and less
//     than half of the validity is spent.
//   - A holder that has sent a Pass does not use or end the baton any more, unless the bell replies
//     that it is still the holder.
//   - The next holder counts the validity of the baton from the time at which it sent its last
//     request to the bell, minus the time that was spent when the Pass was sent. It is not too long,
//     because the bell executed that request before it granted the name to the previous holder, and
//     that holder sent the Pass later. No clock of a node is used. Each holder assumes that the votes
//     are older by its own wait, so after a number of turns a holder releases all votes, and the next
//     one requests new ones.
//   - If the grant of the bell does not count, or too little of the validity is left, or the note is from
//     a client with another list of nodes, the next holder ends the baton and asks the other nodes.
//   - The bell keeps the note with the grant. A waiter whose push was lost gets it when it asks
//     again. A waiter that gives up gets it with the reply to its Leave, and ends the baton.
//
// A lease that is held for 10 ms, or is renewed, closed or requested again before, gives the votes of
// the baton to its own identity with Rename. From then on it is like any other lease. A vote whose
// Rename was not confirmed does not count for a renewal, which repeats the Rename. It is not given back
// before the lease ends. Until a lease is renamed, a renewal by another handle finds only the bell's vote.
//
// If a client dies while it has the baton, or the outcome of a Pass is unknown, the votes of the baton
// block the name until they expire, for at most 2 s.
//
// During the first 10 ms, List shows the holder that the bell reports, with a token of the baton's
// block. Break ends the grant of the bell first: from then on the votes cannot be passed on. If a node
// does not answer, another request has a vote, or the bell has restarted, another client does not know
// whose votes they are. It leaves them to expire, and its Break or Release fails, because the outcome is
// unknown. It cannot know that the bell has lost its data without a restart (FLUSHALL): if it then breaks
// the request that has got the vote of the bell, it ends the votes of the holder.
//
// # Modes
//
// Shared mode and permits are not supported. Permits on a majority of the nodes are not a
// semaphore: with a limit of 2 and three nodes, the holders a, b and c can have the votes
// {1,2}, {2,3} and {1,3}. No node has given more than 2 permits, and three are held.
//
// # Invariants
//
// For one name, while the assumptions hold:
//
//	I1  At no time do two clients believe that they hold a valid lease.
//	I2  If lease A was granted before lease B, the last token of A is less than the first
//	    token of B.
//	I3  A lease is never extended after another lease of the name was granted.
//	I4  A vote that no valid lease or attempt in progress needs ends within TTL + drift.
//
// I1: a lease is valid only while each node of some majority has its grant, by Majority,
// Validity, Order, RenewMajority, Voted and Gone; a node has one grant of a name; two majorities have a
// node in common, and by Young that node has not forgotten the first grant. I2: let x be a node
// that counted for A and for B. When A's block counted, x had recorded last(A) with A's grant.
// B's grant at x is later, because A's grant was there before. So first(x, B) > last(A), and
// first(B) >= first(x, B) by Above.
//
// Leases that are passed on: the baton and the bell's vote are one lease that changes its bearer. The
// bell, one node that executes one message at a time, passes it on to one waiter, and only while the
// bearer that sent the Pass is the holder there: a copy of the message finds another holder. A bearer
// that has sent a Pass does not act on the lease any more. A bell that has restarted, and may pass the
// lease on twice, does not count by Young. The validity of the baton never grows. Its votes are a
// majority without the bell, so a clock of the bell that jumps does no harm. Its tokens: a majority of
// nodes recorded the whole block under the baton, so every later lease has a higher token.
//
// The tests contain a model checker that runs the decisions of
// this package. It finds a violation if any one of the rules is switched off.
package quorum
