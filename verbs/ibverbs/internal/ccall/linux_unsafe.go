//go:build linux && (amd64 || arm64)

package ccall

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Addresses of the functions in assembly, which cgocall calls as C functions on the thread's C
// stack with its second argument.
var (
	doEntry    uintptr // *Call
	errnoEntry uintptr // *errnoCall
	runEntry   uintptr // *runCall
)

// cgocall is what cgo's own calls go through. The runtime keeps it linkable for purego.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(entry uintptr, arg unsafe.Pointer) int32

// errnoLocation is __errno_location, set by the first Load: before it there is nothing to call.
var (
	errnoLocation uintptr
	findErrno     = sync.OnceValue(func() (err error) {
		errnoLocation, err = symbol(purego.RTLD_DEFAULT, "__errno_location")
		return err
	})
)

func load(name string) (uintptr, error) {
	// What dlerror(3) says is of the thread that dlopen(3) was called by.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := findErrno(); err != nil {
		return 0, err
	}
	// Global, since libibverbs loads its providers by itself, and those use its symbols.
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func symbol(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}
