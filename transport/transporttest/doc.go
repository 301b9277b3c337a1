// Package transporttest is the conformance suite that every transport passes on every device and
// wire: Run.
//
// Concurrency: most tests poll all ranks from one goroutine, in an order that the seed decides, so
// that a failure on the loop wire replays; a few give each rank a goroutine of its own.
//
// "TMO 5.1" is section 5.1 of docs/tag-matching-offload.md.
//
// This package carries no compatibility promise yet.
package transporttest
