// Package verbstest is the conformance suite for devices: one named test for each rule of the device contract that a device can
// show by itself (rules.go), and scenarios beyond them. Run it on every verbs.Device. A test that fails tells its rule.
//
// Concurrency: each subtest owns its devices and polls all of them from one goroutine, unless it says otherwise.
//
// This package carries no compatibility promise yet.
package verbstest
