package ccall

import (
	"syscall"
	"unsafe"
)

// Call is a call of the function at Fn. It can be made any number of times.
type Call struct {
	Fn   uintptr
	Args [6]uintptr
	// Ret is what the register of the result has after the call: of a C int it is the low half,
	// int32(Ret), and the rest is undefined.
	Ret uintptr
}

// Do makes the call.
func (c *Call) Do() { cgocall(doEntry, unsafe.Pointer(c)) }

// DoErrno makes the call and returns what it has set errno to, 0 if it has not. Both happen in one
// crossing, since errno is of a thread.
func (c *Call) DoErrno() syscall.Errno {
	e := errnoCall{call: c, location: errnoLocation}
	cgocall(errnoEntry, unsafe.Pointer(&e))
	return syscall.Errno(e.errno)
}

// errnoCall is the argument of errnoEntry.
type errnoCall struct {
	call     *Call
	location uintptr // function that returns the address of the thread's errno
	errno    int32
}

// Kind is the kind of a Step.
type Kind uintptr

const (
	StepCall  Kind = iota // call
	StepCheck             // call, and end the list where the result, a C int, is not 0
	StepLoad              // load 8 bytes, which are aligned
)

// Step is a step of a list.
type Step struct {
	Kind Kind
	Addr uintptr // of the function, or of the 8 bytes
	Args [3]uintptr
	Ret  uintptr // the result, as in Call, or the bytes; only of steps that Run has made
}

// Run makes steps, in order, in one crossing, and then last, which calls: nil is none. The list may
// end before: where a StepCheck that is not the first has ended it last is made, where the first
// step has it is not. Run returns how many it has made, without last: all, or those up to and
// including the one that ended the list.
func Run(steps []Step, last *Step) int {
	if len(steps) == 0 {
		return 0
	}
	r := runCall{first: &steps[0], left: len(steps), last: last}
	cgocall(runEntry, unsafe.Pointer(&r))
	return len(steps) - r.left
}

// runCall is the argument of runEntry.
type runCall struct {
	first *Step
	left  int // steps that were not made
	last  *Step
}
