// Package verbstest is the conformance suite for devices: tests for each rule of the device
// contract that a device alone can show (rules.go), by the names of the rules, and scenarios beyond
// them. Run it on every verbs.Device. A test that proves several rules runs once.
//
// Concurrency: each subtest owns its devices and polls all of them from one goroutine, unless it
// says otherwise.
//
// "TMO 5.2" is section 5.2 of docs/tag-matching-offload.md, V1 to V19 are its invariants, scenarios
// 1 to 58 those of its section 7.2, which TestRace01 to TestRace58 play, here and in packages tmsrq
// and progress. TestReferences checks all references to that document in the repository.
//
// This package carries no compatibility promise yet.
package verbstest
