// Package consumer has the tests that programs outside this module can be built against the
// library, as README describes, and work: the examples too, which can be copied.
//
// Concurrency: it has no code of its own.
package consumer
