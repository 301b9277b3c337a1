// Package hook lets p2p's own test packages connect a World in ways that Config does not allow.
//
// Concurrency: values are not changed after Init.
package hook
