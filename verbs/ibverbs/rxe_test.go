//go:build rxe

// These tests need two devices of the kernel's software RDMA, rv0 and rv1 on the interfaces v0 and
// v1, that reach each other: test/vm has them, and runs only what is called TestRXE.

package ibverbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

var open = opener("rv0", "rv1")

// leftOut are the rules that do not hold on rxe.
var leftOut = leftOutAnd(testlevel.LeftOut{
	"8.1/access":          "rxe says REM_INV_REQ_ERR where the queue pair lacks the right",
	"8.2/reclaim":         "rxe's queues hold more than they grant",
	"8.2/errors-complete": "rxe says LOC_QP_OP_ERR instead of LOC_PROT_ERR",
	"8.3/too-long":        "rxe says REM_OP_ERR instead of REM_INV_REQ_ERR",
	"8.3/lkey":            "rxe says REM_ACCESS_ERR instead of LOC_PROT_ERR",
	"8.3/first-error":     "rxe says LOC_QP_OP_ERR instead of LOC_PROT_ERR",
	"8.3/flush":           "rxe says REM_OP_ERR instead of REM_INV_REQ_ERR",
	"8.3/last-wqe":        "rxe says LOC_QP_OP_ERR instead of LOC_LEN_ERR",
})

// lossy is set where test/vm's wire loses packets.
var lossy = os.Getenv("TAGMATCH_TEST_LOSS") != ""

func init() {
	if lossy {
		leftOut["8.2/implies"] = "rxe gives up a request behind a READ that has lost packets"
	}
	if version, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil && strings.HasPrefix(string(version), "6.1.") {
		for _, rule := range []string{"1.4/chain", "1.4/full"} {
			leftOut[rule] = "rxe's shared queues hold more than they grant"
		}
	}
}

// TestRXE: a long READ over a wire that loses packets takes many timeouts.
func TestRXE(t *testing.T) {
	verbstest.Run(t, open, verbstest.TagOptions{Silent: true, ByItself: true, NoEvents: true, LeftOut: leftOut, Patience: time.Minute,
		Lossy: lossy, DeafReads: true})
}

func TestRXELeftOut(t *testing.T) { leftOut.StillFails(t, "TestRXE") }

func TestRXENames(t *testing.T) { refusesNames(t, "rv0", "rv1") }

func TestRXEPortDown(t *testing.T) {
	portDown(t, "rv0", func(state string) { require.NoError(t, exec.Command("ip", "link", "set", "v0", state).Run()) })
}

// onThread runs f on a thread of its own, which ends with it, with what it has changed of itself.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// TestRXENoRight: whoever may not open the device's node is told its path.
func TestRXENoRight(t *testing.T) {
	nodes, err := filepath.Glob("/dev/infiniband/uverbs*")
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	for _, n := range nodes {
		require.NoError(t, os.Chmod(n, 0o600))
		defer func() { require.NoError(t, os.Chmod(n, 0o666)) }()
	}
	onThread(func() {
		_, err = unix.SetfsuidRetUid(65534)
		if err == nil {
			_, err = ibverbs.Open("rv1", verbs.DriverConfig{Lines: openLines})
		}
	})
	var e *verbs.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, syscall.EACCES, e.Errno)
	require.ErrorContains(t, err, "device rv1")
	require.ErrorContains(t, err, nodes[1])
}

// TestRXELockedMemory: a region beyond the limit of locked memory is refused with that limit.
func TestRXELockedMemory(t *testing.T) {
	d := open(t, 1)[0]
	pd, err := d.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Dealloc()) }()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: limit.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)) }()
	var short, long verbs.MR
	var errShort, errLong error
	onThread(func() {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err = unix.Capget(&head, &caps[0]); err != nil {
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err = unix.Capset(&head, &caps[0]); err != nil {
			return
		}
		short, errShort = pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)
		long, errLong = pd.RegMR(make([]byte, 1<<20), verbs.AccessLocalWrite)
	})
	require.NoError(t, err)
	require.NoError(t, errShort)
	require.NoError(t, short.Dereg())
	require.Nil(t, long)
	require.ErrorIs(t, errLong, syscall.ENOMEM)
	for _, s := range []string{"reg_mr", "port rv0:1", "a region of 1048576 bytes", "65536 bytes", "ulimit -l"} {
		require.ErrorContains(t, errLong, s)
	}
}

// TestRXEDriver: programs find the device by its one name.
func TestRXEDriver(t *testing.T) {
	for _, d := range verbs.Drivers() {
		names, err := d.Devices()
		require.NoError(t, err)
		require.Equal(t, []string{"rdma"}, names)
		dev, err := d.Open("rdma", verbs.DriverConfig{Lines: openLines})
		require.NoError(t, err)
		require.Equal(t, "rdma", dev.Name())
		attr := dev.Attr()
		require.GreaterOrEqual(t, attr.MaxInline, 258, "a control message fits")
		require.Zero(t, attr.TM, "rxe has no tag matching")
		require.Equal(t, verbs.Suits{Receives: 2048, Sends: 64}, attr.Suits)
		require.NoError(t, dev.Close())
	}
	require.Len(t, verbs.Drivers(), 1)
	ports, err := verbs.Drivers()[0].(verbs.PortLister).Ports()
	require.NoError(t, err)
	require.Len(t, ports, 2)
	require.Equal(t, verbs.Port{Name: "rv0:1", State: "active, Ethernet, MTU 1024, GID 1: 10.77.0.1", Chosen: true}, ports[0])
	require.Equal(t, "rv1:1", ports[1].Name)
	require.False(t, ports[1].Chosen)
}
