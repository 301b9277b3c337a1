// Package matching provides the two queues of tag matching: receives that wait
// for a message ([Posted]) and messages that wait for a receive ([Unexpected]).
// Neither is safe for concurrent use: a queue has one owner, who serializes all
// calls, reads included. The package starts no goroutine and has no lock, clock,
// I/O or log; given the seed, its behaviour is a function of the calls.
//
// The package carries no compatibility promise yet.
package matching
