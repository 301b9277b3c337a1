package ibverbs

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// library is libibverbs: addresses of those of its functions that the header does not inline.
type library struct {
	getDeviceList, freeDeviceList                uintptr
	openDevice, closeDevice                      uintptr
	queryGIDEx                                   uintptr
	allocPD, deallocPD, regMR, deregMR           uintptr
	createCompChannel, destroyCompChannel        uintptr
	createCQ, destroyCQ, getCQEvent, ackCQEvents uintptr
	getAsyncEvent, ackAsyncEvent                 uintptr
	createSRQ, modifySRQ, querySRQ, destroySRQ   uintptr
	createQP, modifyQP, queryQP, destroyQP       uintptr
}

const libraryName = "libibverbs.so.1"

// theLibrary loads the library once.
var theLibrary = sync.OnceValues(func() (*library, error) { return load(libraryName) })

// load loads a library of that name.
func load(name string) (*library, error) {
	const op = "load"
	l := &library{}
	file, err := ccall.Load(name)
	if err != nil {
		return nil, fail(op, syscall.ENOSYS, err.Error()+"; install libibverbs and the provider of the device: Debian's ibverbs-providers, or rdma-core")
	}
	for _, f := range []struct {
		name string
		addr *uintptr
	}{
		{"ibv_get_device_list", &l.getDeviceList}, {"ibv_free_device_list", &l.freeDeviceList},
		{"ibv_open_device", &l.openDevice}, {"ibv_close_device", &l.closeDevice},
		{"_ibv_query_gid_ex", &l.queryGIDEx},
		{"ibv_alloc_pd", &l.allocPD}, {"ibv_dealloc_pd", &l.deallocPD}, {"ibv_reg_mr", &l.regMR}, {"ibv_dereg_mr", &l.deregMR},
		{"ibv_create_comp_channel", &l.createCompChannel}, {"ibv_destroy_comp_channel", &l.destroyCompChannel},
		{"ibv_create_cq", &l.createCQ}, {"ibv_destroy_cq", &l.destroyCQ},
		{"ibv_get_cq_event", &l.getCQEvent}, {"ibv_ack_cq_events", &l.ackCQEvents},
		{"ibv_get_async_event", &l.getAsyncEvent}, {"ibv_ack_async_event", &l.ackAsyncEvent},
		{"ibv_create_srq", &l.createSRQ}, {"ibv_modify_srq", &l.modifySRQ}, {"ibv_query_srq", &l.querySRQ}, {"ibv_destroy_srq", &l.destroySRQ},
		{"ibv_create_qp", &l.createQP}, {"ibv_modify_qp", &l.modifyQP}, {"ibv_query_qp", &l.queryQP}, {"ibv_destroy_qp", &l.destroyQP},
	} {
		if *f.addr, err = file.Symbol(f.name); err != nil {
			return nil, fail(op, syscall.ENOSYS, fmt.Sprintf("%s is too old, use rdma-core 32 or later: %v", libraryName, err))
		}
	}
	return l, nil
}

// call calls a function that reports by errno, or by nothing.
func call(fn uintptr, args ...uintptr) (ret uintptr, errno syscall.Errno) {
	c := ccall.Call{Fn: fn}
	copy(c.Args[:], args)
	errno = c.DoErrno()
	return c.Ret, errno
}

// object calls a function that returns an object, or NULL and errno.
func object(op string, fn uintptr, args ...uintptr) (uintptr, error) {
	p, errno := call(fn, args...)
	if p == 0 {
		return 0, fail(op, errno, "")
	}
	return p, nil
}

// status calls a function that returns 0, or an errno; some return it negative, others -1 and set
// errno.
func status(op string, fn uintptr, args ...uintptr) error {
	ret, errno := call(fn, args...)
	switch r := int32(ret); {
	case r == 0:
		return nil
	case r != -1:
		errno = syscall.Errno(max(r, -r))
	}
	return fail(op, errno, "")
}

// fail makes the error of a verb. An errno of 0, where a provider has set none, is EIO.
func fail(op string, errno syscall.Errno, detail string) error {
	if errno == 0 {
		errno = syscall.EIO
	}
	return &verbs.Error{Op: op, Errno: errno, Detail: detail}
}

// named is the error of a verb with the port, what was asked for, or "", and the likely cause.
func (p *port) named(err error, asked string) error {
	var e *verbs.Error
	if !errors.As(err, &e) {
		return err
	}
	detail := []string{"port " + p.String()}
	if p.num == 0 {
		detail[0] = "device " + p.name
	}
	for _, s := range []string{asked, e.Detail, likely(e.Op, e.Errno)} {
		if s != "" {
			detail = append(detail, s)
		}
	}
	return fail(e.Op, e.Errno, strings.Join(detail, ": "))
}

// likely is the likely cause of an errno of a verb, or "".
func likely(op string, errno syscall.Errno) string {
	switch {
	case errno == syscall.ENOMEM && strings.HasPrefix(op, "post_"):
		return "the queue is full: room comes back with completions that are polled"
	case errno == syscall.ENOMEM:
		return lockedMemory()
	case errno == syscall.EIO || errno == syscall.ENODEV:
		return "the device may be gone: its driver was unloaded, or it was removed"
	}
	return ""
}

// lockedMemory says what limits the memory that devices use.
func lockedMemory() string {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) // cannot fail
	if limit.Cur == unix.RLIM_INFINITY {
		return "the limit is the device's, as this process may lock any memory (ulimit -l)"
	}
	return fmt.Sprintf("the limit of locked memory is %d bytes: raise it by ulimit -l, by memlock in /etc/security/limits.conf, "+
		"or for a service of systemd by LimitMEMLOCK", limit.Cur)
}

// errnoOf is the errno of an error of this package.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	_ = errors.As(err, &errno)
	return errno
}
