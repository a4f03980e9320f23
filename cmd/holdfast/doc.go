// Holdfast runs shell jobs under locks, across processes and hosts, and shows who holds which locks.
//
//	holdfast run nightly-backup -- ./backup.sh
//	holdfast ls
//
// See holdfast help, and holdfast help run for what happens to the job when the lock is lost.
//
// Read main.go first: it lists the commands. A run goes through run.go, joboptions.go (flags),
// runner.go (acquire the lock) and hold.go (run the job, release the lock, exit code).
// Package internal/job has the processes, the guard and the terminal.
package main
