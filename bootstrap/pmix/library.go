//go:build linux && (amd64 || arm64)

package pmix

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// library is libpmix, loaded.
type library struct {
	init     func(me *proc, infos *info, n uintptr) int32
	put      func(scope uint8, key string, v *value) int32
	commit   func() int32
	fence    func(procs *proc, n uintptr, infos *info, ninfo uintptr) int32
	get      func(p *proc, key string, infos *info, n uintptr, out **value) int32
	abort    func(status int32, msg string, procs *proc, n uintptr) int32
	finalize func(infos *info, n uintptr) int32
	text     func(status int32) string

	// What get returns is the caller's; nil where the library has no way to free it.
	destruct func(v *value)
	free     func(p unsafe.Pointer)
}

// load opens the library of that name, or the usual one.
func load(name string) (l *library, err error) {
	names := []string{"libpmix.so.2", "libpmix.so"}
	if name != "" {
		names = []string{name}
	}
	runtime.LockOSThread() // what dlerror(3) says is of the thread that dlopen(3) was called by
	defer runtime.UnlockOSThread()
	var handle uintptr
	var failures []string
	for _, n := range names {
		if handle, err = purego.Dlopen(n, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
			break
		}
		failures = append(failures, err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("the PMIx library cannot be loaded (%s): install it (Debian's package libpmix2), or name it by %s",
			strings.Join(failures, "; "), space.EnvPMIxLibrary)
	}
	defer func() { // of a function that the library lacks
		if r := recover(); r != nil {
			l, err = nil, fmt.Errorf("the PMIx library is not one: %v", r)
		}
	}()
	l = &library{}
	for symbol, f := range map[string]any{"PMIx_Init": &l.init, "PMIx_Put": &l.put, "PMIx_Commit": &l.commit, "PMIx_Fence": &l.fence,
		"PMIx_Get": &l.get, "PMIx_Abort": &l.abort, "PMIx_Finalize": &l.finalize, "PMIx_Error_string": &l.text} {
		purego.RegisterLibFunc(f, handle, symbol)
	}
	if sym, err := purego.Dlsym(handle, "PMIx_Value_destruct"); err == nil {
		purego.RegisterFunc(&l.destruct, sym)
	}
	if sym, err := purego.Dlsym(purego.RTLD_DEFAULT, "free"); err == nil {
		purego.RegisterFunc(&l.free, sym)
	}
	return l, nil
}

// failed is the error of a call that returned status.
func (l *library) failed(call string, status int32) error {
	if status == 0 {
		return nil
	}
	const unreachable = -25
	if status == unreachable {
		return errors.New(call + ": the PMIx server of this host cannot be reached")
	}
	return fmt.Errorf("%s: %s (%d)", call, l.text(status), status)
}

// release frees what get has returned.
func (l *library) release(v *value) {
	if l.destruct != nil && l.free != nil {
		l.destruct(v)
		l.free(unsafe.Pointer(v))
	}
}
