//go:build !linux || !(amd64 || arm64)

package ccall

import (
	"fmt"
	"runtime"
	"unsafe"
)

var doEntry, errnoEntry, runEntry, errnoLocation uintptr

func load(name string) (uintptr, error) {
	return 0, fmt.Errorf("%s: calls into C libraries are not supported on %s/%s", name, runtime.GOOS, runtime.GOARCH)
}

// Without a Library there is no symbol, and nothing to call.

func symbol(uintptr, string) (uintptr, error) { panic("ccall: no library") }
func cgocall(uintptr, unsafe.Pointer) int32   { panic("ccall: no library") }
