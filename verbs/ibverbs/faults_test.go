package ibverbs

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// isFault: err is the error of that verb with that errno, and says all that.
func isFault(t *testing.T, err error, op string, errno syscall.Errno, says ...string) {
	t.Helper()
	var e *verbs.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, op, e.Op, "%v", err)
	require.Equal(t, errno, e.Errno, "%v", err)
	for _, s := range says {
		require.ErrorContains(t, err, s)
	}
}

func TestMissingSymbol(t *testing.T) {
	newProvider(t)
	old := filepath.Join(t.TempDir(), libraryName)
	out, err := compileLibrary(old, "provider.c", "-DWITHOUT_FREE")
	require.NoError(t, err, "%s", out)
	_, err = load(old)
	isFault(t, err, "load", syscall.ENOSYS, "too old", old, "ibv_free_device_list")
	_, err = load(filepath.Join(t.TempDir(), "none.so"))
	isFault(t, err, "load", syscall.ENOSYS, "none.so", "ibverbs-providers")
}

// TestOpenFaults: why there is no device, or no port.
func TestOpenFaults(t *testing.T) {
	const down = abi.PortActive - 3
	for name, c := range map[string]struct {
		with  func(p *provider)
		port  string
		gid   string
		op    string
		errno syscall.Errno
		says  []string
	}{
		"no devices": {with: func(p *provider) { set(p, "devices", int32(0)) },
			op: "get_device_list", errno: syscall.ENODEV, says: []string{"no RDMA devices", "rdma link add"}},
		"no kernel module": {with: func(p *provider) { set(p, "devices", int32(-1)); set(p, "list_errno", int32(syscall.ENOSYS)) },
			op: "get_device_list", errno: syscall.ENOSYS, says: []string{"no RDMA devices", "ib_uverbs"}},
		"list fails": {with: func(p *provider) { set(p, "devices", int32(-1)); set(p, "list_errno", int32(syscall.EMFILE)) },
			op: "get_device_list", errno: syscall.EMFILE},
		"another transport": {with: func(p *provider) { set(p, "transport", int32(1)) },
			op: "open_device", errno: syscall.ENODEV, says: []string{"fake0 (neither InfiniBand nor RoCE)"}},
		"unknown device": {port: "fake1", op: "open_device", errno: syscall.ENODEV, says: []string{`TAGMATCH_RDMA_PORT is "fake1"`, "this host has fake0"}},
		"unknown port":   {port: "fake0:3", op: "query_port", errno: syscall.EINVAL, says: []string{"TAGMATCH_RDMA_PORT is fake0:3", "ports of fake0 are 1 to 2"}},
		"no port":        {port: "fake0:x", op: "open_device", errno: syscall.EINVAL, says: []string{"fake0:x", "mlx5_0:1"}},
		"port down":      {port: "fake0:1", op: "query_port", errno: syscall.ENETDOWN, says: []string{"port fake0:1 is down", "rdma link"}},
		"all ports down": {with: func(p *provider) {
			set(p, "states", [2]int32{down, down + 1})
			set(p, "link_layer", int32(abi.LinkLayerInfiniBand))
		}, op: "query_port", errno: syscall.ENETDOWN, says: []string{"port fake0:1 is down, port fake0:2 is initialising", "subnet manager"}},
		"no GID": {with: func(p *provider) { set(p, "gid_types", [4]int32{0, -1, -1, -1}) },
			op: "query_gid", errno: syscall.EADDRNOTAVAIL, says: []string{"port fake0:2", "RoCE v2", "IP address", "TAGMATCH_RDMA_GID"}},
		"no GID 0": {with: func(p *provider) {
			set(p, "gid_types", [4]int32{-1, 2, -1, -1})
			set(p, "link_layer", int32(abi.LinkLayerInfiniBand))
		}, op: "query_gid", errno: syscall.EADDRNOTAVAIL, says: []string{"port fake0:2 has no GID 0"}},
		"empty GID":   {gid: "3", op: "query_gid", errno: syscall.EADDRNOTAVAIL, says: []string{"TAGMATCH_RDMA_GID is 3", "port fake0:2"}},
		"unknown GID": {gid: "4", op: "query_gid", errno: syscall.EINVAL, says: []string{"TAGMATCH_RDMA_GID", "port fake0:2 has GIDs 0 to 3"}},
		"no right": {with: func(p *provider) { p.fails("open_device", syscall.EACCES) },
			op: "open_device", errno: syscall.EACCES, says: []string{"fake0", "/dev/infiniband/uverbs7", "group and mode"}},
		"no node": {with: func(p *provider) { p.fails("open_device", syscall.ENOENT) },
			op: "open_device", errno: syscall.ENOENT, says: []string{"fake0", "/dev/infiniband/uverbs7", "container"}},
		"removed": {with: func(p *provider) { p.fails("query_device", syscall.EIO) },
			op: "query_device", errno: syscall.EIO, says: []string{"device fake0", "may be gone"}},
		"removed later": {with: func(p *provider) { p.fails("query_gid", syscall.EIO) },
			op: "query_gid", errno: syscall.EIO, says: []string{"port fake0:2: GID 0", "may be gone"}},
		"no inline": {with: func(p *provider) { p.fails("create_qp", syscall.ENOMEM) },
			op: "create_qp", errno: syscall.ENOMEM, says: []string{"port fake0:2", "inline", "ulimit -l"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			if c.with != nil {
				c.with(p)
			}
			t.Setenv(portVariable, c.port)
			t.Setenv(gidVariable, c.gid)
			before := descriptors(t)
			_, err := driver{}.Open(deviceName, verbs.DriverConfig{Lines: linesOfTest})
			isFault(t, err, c.op, c.errno, c.says...)
			require.Len(t, descriptors(t), len(before))
		})
	}
}

// TestShortMemory: what could not be made is named, with the limit that may be the cause.
func TestShortMemory(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	low := unix.Rlimit{Cur: min(64<<10, limit.Max), Max: limit.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)) }()
	r := newRig(t)
	for op, c := range map[string]struct {
		makes func() error
		says  string
	}{
		"reg_mr":    {func() error { _, err := r.pd.RegMR(make([]byte, 1<<20), 0); return err }, "a region of 1048576 bytes"},
		"create_cq": {func() error { _, err := r.d.CreateCQ(verbs.CQInitAttr{CQE: 300}); return err }, "300 completions"},
		"create_srq": {func() error {
			_, err := r.pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 40}})
			return err
		}, "40 receives"},
		"create_qp": {func() error {
			_, err := r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 50, MaxRecvWR: 60}})
			return err
		}, "50 sends and 60 receives"},
		"alloc_pd":            {func() error { _, err := r.d.AllocPD(); return err }, ""},
		"create_comp_channel": {func() error { _, err := r.d.CreateCompChannel(); return err }, ""},
	} {
		r.fails(op, syscall.ENOMEM)
		isFault(t, c.makes(), op, syscall.ENOMEM, "port fake0:2", c.says, "locked memory is 65536 bytes", "ulimit -l")
	}
	r.fails("modify_qp", syscall.EINVAL)
	isFault(t, r.qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMaskInit), "modify_qp", syscall.EINVAL, "port fake0:2", "queue pair")
	require.Equal(t, verbs.QPSReset, r.qp.State())
	r.fails("", 0)
}

// TestPostFaults: what a post fails with names port and queue, and a full queue as such: locked
// memory has nothing to do with it.
func TestPostFaults(t *testing.T) {
	r := newRig(t)
	r.connect(r.qp, r.d.Address())
	for errno, says := range map[syscall.Errno]string{syscall.ENOMEM: "the queue is full", syscall.EIO: "may be gone", syscall.EINVAL: ""} {
		set(r.provider, "refused", uint64(0))
		set(r.provider, "refused_errno", int32(errno))
		_, err := r.qp.PostSend(&chain(1)[0])
		isFault(t, err, "post_send", errno, "port fake0:2: queue pair 1", says)
		require.NotContains(t, err.Error(), "ulimit")
		_, err = r.srq.PostSRQRecv(&receives(1)[0])
		isFault(t, err, "post_srq_recv", errno, "port fake0:2", says)
	}
	set(r.provider, "refused", ^uint64(0))
}

// TestVanishes: a device that is removed is an event with its cause, and ends nothing else: objects
// can be destroyed.
func TestVanishes(t *testing.T) {
	r := newRig(t)
	set(r.provider, "gone", int32(0))
	waits := make(chan error)
	go func() { waits <- r.ch.Wait() }()
	call0(t, r.provider, "take_away")
	require.NoError(t, <-waits, "whoever waits for completions looks again")
	var ev verbs.AsyncEvent
	require.Eventually(t, func() bool {
		e, ok := r.d.PollAsync()
		ev = e
		return ok
	}, testlevel.Patience(20*time.Second), time.Millisecond)
	require.Equal(t, verbs.EventDeviceFatal, ev.Type)
	isFault(t, ev.Err, "get_async_event", syscall.EIO, "port fake0:2", "gone")
	r.fails("reg_mr", syscall.EIO)
	_, err := r.pd.RegMR(make([]byte, 1), 0)
	isFault(t, err, "reg_mr", syscall.EIO, "port fake0:2", "gone")
	r.close()
}

func call0(t *testing.T, p *provider, name string) {
	fn, err := p.Symbol(name)
	require.NoError(t, err)
	_, _ = call(fn)
}
