// Package meters has the names of all numbers that monitoring systems get of ranks, and writes them
// as text: `tagmatch metrics` and module metrics/prometheus have the same from here.
//
// Concurrency: all functions may be called by any goroutine.
package meters
