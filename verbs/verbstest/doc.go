// Package verbstest is the conformance suite for devices: one named test for each rule of the device contract that a device can
// show by itself. Run it on every verbs.Device.
//
// Concurrency: a suite drives all devices of a test from the test's goroutine, as their one owner.
//
// This package carries no compatibility promise yet.
package verbstest
