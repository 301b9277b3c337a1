// Package fault touches memory that may be gone: that the program has unmapped or protected since
// it gave it to the library, or that lies behind the end of its file. Where a plain access would
// end the process these functions say so. Each costs some 15 ns: they are for what is large.
//
// Concurrency: functions only. They see faults of the calling goroutine.
package fault

import (
	"runtime"
	"runtime/debug"
)

// granule is the smallest page there is, in bytes.
const granule = 4096

// Guard calls f, which reads or writes the memory of programs. It returns false if f could not, and
// ended there: f must leave nothing half done that matters.
func Guard(f func()) (ok bool) {
	defer caught(debug.SetPanicOnFault(true), &ok)
	f()
	return true
}

// caught is deferred, and ends a Guard: was is what the goroutine does at faults otherwise.
func caught(was bool, ok *bool) {
	debug.SetPanicOnFault(was)
	switch fault := recover().(type) {
	case nil:
	case interface { // of debug.SetPanicOnFault; a bug of f's is none
		runtime.Error
		Addr() uintptr
	}:
		*ok = false
	default:
		panic(fault)
	}
}

// Copy copies src to dst, of the same length. It returns false if one of them is gone; dst may have
// a part of src then.
func Copy(dst, src []byte) bool {
	return Guard(func() { copy(dst, src) })
}

// Readable reports whether b can be read. It reads a byte of each page, which costs less than a
// system call for the pieces that wires send.
func Readable(b []byte) bool {
	return Guard(func() { touch(b, load) })
}

// Writable reports whether b, which nobody else uses, can be written. It writes a byte of each page
// again.
func Writable(b []byte) bool {
	return Guard(func() { touch(b, store) })
}

// touch reads a byte of each page of b, and passes it on.
func touch(b []byte, to func(p *byte, is byte)) {
	for i := 0; i < len(b); i += granule {
		to(&b[i], b[i])
	}
	if len(b) != 0 {
		to(&b[len(b)-1], b[len(b)-1])
	}
}

// load and store are not inlined: a compiler would leave out what has no effect.
//
//go:noinline
func load(*byte, byte) {}

//go:noinline
func store(p *byte, v byte) { *p = v }
