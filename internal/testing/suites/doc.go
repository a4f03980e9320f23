// Package suites has tests that several stores share, and helpers for such tests:
//
//   - Request, Granted, Refused and others make calls that must succeed, and WorksBy calls that must soon.
//   - Contend and Updates let many clients use names and rows.
//   - Crowd measures a name that many clients use at the same time.
//   - Exactness tests stores that execute all calls one after the other.
//   - Formats tests that the contents of a server keep their format.
//   - Hung tests the time limits of a client while its servers do not answer.
//   - HungServer and EndInTime test the time limits of a store.
//   - Late tests requests that arrive after the call that undoes them.
//   - Later makes a call of a store that sends concurrent calls in batches.
//   - Mutants changes one condition of the code at a time, and expects that a test fails.
//   - PoolUsedUp tests a store that uses the pool of connections of an application.
//   - RenewalsShare tests a store that sends concurrent renewals in batches.
//   - Settled is a quorum whose calls wait for all nodes.
//   - SQLFence tests a dialect of sqlfence on a real database.
//   - StuckNames, StuckLease and StuckRenewals test rows that another session has locked.
//   - Text is a buffer for the log of a program.
//   - UnknownFormat tests that a store leaves records of a later version alone.
//   - URLWorks checks that a store opened by a URL works.
package suites
