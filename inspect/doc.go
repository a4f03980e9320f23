// Package inspect shows the locks of a store in a browser.
//
//	mux.Handle("/locks/", inspect.Handler(client, inspect.At("/locks/")))
//
// The list updates itself. It shows every lock with its holders, tokens, remaining time and
// waiters in order. It can be filtered and sorted as with the command "holdfast ls". The page of one
// lock has the changes that were seen, and a timeline of holders and waiters. Without JavaScript, the pages
// work too and reload themselves. The path healthz below the handler answers with 200 if the
// store answers, and otherwise with 503.
//
// # Safety
//
// The handler only reads, unless [AllowBreak] is given. It shows the names, owners and metas of all
// locks in the namespace of the client, so put it behind the authentication of your server or keep
// it on the loopback interface, as the command "holdfast ui" does. A request from another site that
// would release a lock is refused, and a strict Content-Security-Policy is set.
//
// # Load
//
// One listing serves all browsers. While a page is open, the store is listed every two seconds,
// or less often if a listing takes long: the pause is at least nine times as long as the listing,
// so that listings take at most a tenth of the time. That is also true of a listing that fails after
// it has begun. A store that does not answer at all is asked again after the same two seconds. A
// listing ends after 10,000 names or ten seconds, and the page then says how many names were read.
// A search by prefix then lists the names under that prefix; filters and orders apply to the names
// that were read. The page of a lock that is not in the listing reads only that lock.
// While no page is open, nothing is read.
//
// With 1,000 locks on Redis, an open page causes 500 calls a second: one for each lock, every two
// seconds. The health endpoint asks the store at most once a second.
package inspect
