// Package consumer has the test that a program outside this module can be built against the
// library, as README describes.
//
// Concurrency: it has no code of its own.
package consumer
