// Package ccall loads shared libraries and calls their functions, without cgo.
//
// purego sets the process up for C and loads; calls go through functions of our own in assembly,
// which run on the thread's C stack. A call, a call with errno (Call), or a list of calls and loads
// (Run) is one crossing: runtime.cgocall tells the scheduler, which costs about 30 ns and lets
// other goroutines go on where C blocks. Nothing here allocates but Load and Symbol.
//
// What a caller must heed:
//   - Arguments and results are integers or addresses, at most six; a function neither calls back
//     into Go nor takes floats.
//   - An argument is a number to Go. Memory that it is the address of must outlive the call and
//     must not move: memory outside of the Go heap, or pinned.
//   - A Call and the steps of a Run belong to one goroutine at a time. They may lie on its stack,
//     which does not move during a crossing.
//   - A library is never unloaded, and so an address of one is good for ever.
//
// On systems other than linux/amd64 and linux/arm64 the package builds, and Load fails.
package ccall
