// Package quorum keeps locks on a majority of independent stores. It is the Redlock algorithm
// with a fencing token, per-node timeouts, repair and delayed restart.
//
// A quorum of N nodes, each a [store.Store] on a server of its own, survives the failure of any
// N - majority of them: with 3 nodes one, with 5 nodes two. The nodes know nothing of each other.
// Only exclusive locks are supported. Permits on a majority are not a semaphore: with a limit of 2
// and three nodes, the holders a, b and c can have the votes {1,2}, {2,3} and {1,3}.
//
// # Assumptions
//
//   - All clients have the same list of nodes. To replace a node, add the new one in all programs, wait for
//     the largest TTL and a minute, then remove the old one. Clients tell each other their lists through the
//     nodes, under the name holdfast:quorum:clients. One that does not fit is refused, unless the others are idle.
//   - The address of a node does not lead to the server of another node. If it does, that server still counts
//     once, but a message that ends a vote of the first node may end that of the second.
//   - At most N - majority nodes are faulty at the same time. A node is faulty while it does not answer,
//     and after it lost data or its clock was set ahead, until all grants that it had then have ended. A loss
//     without a restart, such as by FLUSHALL, is not noticed, so it must not happen at a node whose vote a
//     lease needs. A lease usually has all votes after a few milliseconds.
//   - The clocks of client and nodes run at the same speed, except for a drift of 1 percent. They may show
//     different times. A clock that is set ahead matters: see Delayed restart.
//   - A holder does not act after its lease has ended, or the resource checks the token.
//
// # Acquire
//
// For a name, a node has at most one grant (identity, tokens, expiry) and a counter of tokens, which
// other names may share. A client sends only the calls of the store contract.
//
//  1. The client notes the time and sends Acquire(id, n tokens) to all nodes at once. Each node that
//     grants it answers with a block first..last and sets its counter to last. The call returns when a
//     majority has decided it, and the rest is finished in the background. Only grants of nodes that have
//     been up for the restart delay count (rule Young). Fewer grants than a majority are not a lease (rule
//     Majority): the request is refused if a majority of nodes answered, and has failed otherwise.
//  2. The token t of the lease is the majority-th smallest first token. It counts when a majority of all
//     nodes has granted a first token not above t (rule Above) and has recorded t (rule Recorded): the lease
//     relies on these nodes. Nodes that have seen the same requests choose the same tokens.
//     To make the others choose them too, the request asks for tokens above the last one that this client
//     got for the name, which a majority has recorded. Then one round trip is usually enough.
//  3. Otherwise the client waits for the other replies, for as long again as it took so far, and at
//     least 50 ms, but not into the second half of the time limit. If the nodes still disagree, it raises
//     the counters that are behind to one value, with Renew(id, floor t+n-1), which takes another round trip.
//  4. The lease is valid for its TTL from step 1 (rule Validity). Nodes are asked for a TTL that is
//     longer by the drift, TTL/100 + 2 ms. The vote of a node that answers later is kept. A node
//     that refused, because it had not received the release of the previous holder yet, is asked
//     again 1 ms later, then after growing pauses, and then with each renewal.
//
// A request that is refused gives its votes back. If it waits, it keeps its place in the queue of one node.
// A refusal describes the holder as the nodes that have answered know it.
//
// # Renew and release
//
// A renewal goes to all nodes, and only nodes that gave the lease their vote count. The lease is extended if
// a majority of all nodes extended it, and gone if more than N - majority have lost it (rule Renewal).
// Otherwise the outcome is unknown, and the client tries again until the lease ends. Nodes without the
// grant get it in the background, unless the lease may have lost its majority. Their votes count for this
// lease at once, even if they have just restarted. A lease that has ended when the replies arrive is neither
// renewed nor repaired (rule Over): another one may have been granted since.
//
// A release goes to all nodes, and returns when a majority no longer has the grant. With Keep, a majority
// must have the kept record; nodes without a vote are first asked to vote. If the lease turns out to be
// lost, the record is removed again. A kept record is not repaired: it survives the loss of a minority, but
// not the loss of more nodes one after the other.
//
// # Undoing
//
// Messages that create or end a vote are sent one after the other for each identity and node: the next one
// is sent when the previous one was answered or has failed. A vote that is about to be given back does not count
// (rule Voted). A message that ends a vote and was not answered may be executed at any time, so the client
// does not use that node for that identity (rule Order). It repeats the message until the node answers. If the
// node may still execute an earlier message, the client goes on until a minute after that message, but for at
// most 10 minutes in all. If the caller repeats a release, the answer of the node counts at once, and so does a
// record that an earlier call has kept. A request that was never sent is not undone.
//
// Messages of one client about one name to one node are sent in order, too. The client stops waiting
// for a call after twice its time limit. Its name does not use the node until the call returns.
//
// # Delayed restart
//
// A node that restarted may have lost grants that were not written to its disk, and would vote for a
// second holder. So its grants do not count until its server has been up for the restart delay: the larger
// of [Options].RestartDelay and the largest TTL that any client has recorded at the nodes, plus the drift. A
// [Restarter] returns the uptime of its server, and is asked again whenever it had to make a new connection.
// A server with another identity is assumed to have started after the last reply of the previous server.
// Stores without this ability make a quorum that does not declare [store.FeatureFailover].
//
// A node whose clock was set ahead ends grants too early. It is treated as if it had restarted then. Redis
// nodes tell their time with every grant. A client that has just started treats a node in the same way if
// its clock is more than a second ahead of most others: it may have been set a moment ago.
//
// # Waiting
//
// A waiter is queued at one node, the bell of the name: the first node that answers, in an order that
// depends on the name and the identities of the servers, the same for all clients. The bell wakes it, or
// grants it the name with the wake-up, and the waiter asks the other nodes. A first request that the bell
// refuses waits, even if other nodes would grant it. For a second after a client found a name contended,
// its requests ask the bell first: otherwise they would take votes that the next waiter needs. If the name
// is free, that costs them a round trip. If the bell does not answer in time, all nodes are asked.
//
// If votes are split, the request with the vote of the first node in that order goes on and the others
// give theirs back. A waiter that is not woken asks all nodes about every two seconds, because a client
// that died may have left a vote at the bell. Order of arrival is best effort.
//
// # Tokens
//
// Tokens grow as long as any two majorities have a node in common that still has the tokens that it
// recorded. A node that lost its data grants higher tokens nevertheless if its counter follows its clock,
// as that of Redis does, and clocks differ by less than the restart delay. On Redis, nodes agree without
// a second round trip while their clocks are in the same quarter of a second.
//
// # Invariants
//
// For one name, while the assumptions hold: (I1) at no time do two clients believe that they hold a valid
// lease; (I2) if lease A was granted before lease B, the last token of A is less than the first of B; (I3)
// no lease is extended after another one was granted; (I4) a vote that is not needed ends within TTL + drift.
//
// I1: a lease is valid only while each node of some majority has its grant; a node has one grant; two
// majorities have a node in common, and by Young it has not forgotten the first grant. I2: let x be a node
// that A and B rely on. When A's block counted, x had recorded last(A) with A's grant. B's grant at x is
// later, so first(x, B) > last(A), and first(B) >= first(x, B) by Above. The rules are functions in
// rules.go. A model checker in the tests runs them, and finds a violation if any one is switched off.
package quorum
