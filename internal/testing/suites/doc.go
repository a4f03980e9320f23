// Package suites has tests that several stores share, such as Formats and SQLFence, and helpers for such
// tests, such as Granted, which makes a request that must be granted.
package suites
