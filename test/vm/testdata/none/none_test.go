// Package none has a test file without tests.
package none
