// Package verbstest is the conformance suite for devices: one named test for each rule of the device contract that a device can
// show by itself. Run it on every verbs.Device. Each test is declared with the rules that it proves (run.go), and a test that fails
// tells them; the rules are listed in rules.go, and none of them is without a test.
//
// Concurrency: each subtest owns its devices and polls all of them from one goroutine, unless it says otherwise.
//
// This package carries no compatibility promise yet.
package verbstest
