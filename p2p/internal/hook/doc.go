// Package hook lets p2p's own test packages wire a World differently from what Config allows.
//
// Concurrency: values are not changed after Init.
//
// This package carries no compatibility promise yet.
package hook
