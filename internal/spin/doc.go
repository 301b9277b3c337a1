// Package spin is what a loop that polls memory or sockets does between two looks.
package spin
