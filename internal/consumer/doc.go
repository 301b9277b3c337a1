// Package consumer holds the test that a program outside this module can build against the library,
// as README tells it to.
//
// Concurrency: it has no code of its own. This package carries no compatibility promise yet.
package consumer
