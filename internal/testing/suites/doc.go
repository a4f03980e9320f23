// Package suites has tests that several stores share, and helpers for such tests:
//
//   - Crowd measures a name that many clients use at the same time.
//   - Hung tests the time limits of a client while its servers do not answer.
//   - Later makes a call of a store that sends concurrent calls in batches.
//   - Mutants changes one condition of the code at a time, and expects that a test fails.
//   - PoolUsedUp tests stores that use the pool of connections of an application.
//   - Settled is a quorum whose calls wait for all nodes.
//   - SQLFence tests a dialect of sqlfence on a real database.
//   - URLWorks checks that a store opened by a URL works.
package suites
