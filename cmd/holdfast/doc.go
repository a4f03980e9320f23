// Holdfast runs shell jobs under locks, across processes and hosts, and tells who holds
// what.
//
//	holdfast run nightly-backup -- ./backup.sh
//	holdfast ls
//
// See holdfast help, and holdfast help run for what happens to the job when the lock is
// lost. The files in the order in which to read them: main.go (the table of commands),
// run.go, take.go, hold.go, finish.go (a run from its flags to its exit code), and
// internal/job (processes, the guard, the terminal).
package main
