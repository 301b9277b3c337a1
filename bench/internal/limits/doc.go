// Package limits measures what this machine can do at best: the parts of which messages between two
// processes are made, each alone, with nothing around them.
//
// Each limit is measured by this process and a second one that it starts of itself, pinned to
// processors, with memory that both have mapped.
//
// Concurrency: one measurement at a time; each has one goroutine on a thread of its own in both
// processes.
package limits
