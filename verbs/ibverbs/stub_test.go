package ibverbs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// onStub is set in processes whose libibverbs is the stand-in.
const onStub = "TAGMATCH_TEST_STUB"

// stub is the directory with the stand-in, which is built once.
func stub(t testing.TB) string {
	ibverbs.NeedHeader(t)
	dir, err := theStub()
	require.NoError(t, err)
	return dir
}

var theStub = sync.OnceValues(func() (string, error) {
	dir, err := ibverbs.BuildDir()
	if err != nil {
		return "", err
	}
	return dir, buildStub(dir)
})

// buildStub builds the stand-in in dir.
func buildStub(dir string, flags ...string) error {
	build := exec.Command("../../test/tmstub/build", append([]string{filepath.Join(dir, "libibverbs.so.1")}, flags...)...)
	build.Env = append(os.Environ(), "CC="+ibverbs.CC)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// again runs the test that calls it in a process of its own, on the stand-in in dir, and returns
// what that has printed.
func again(t *testing.T, dir, test string, env ...string) string {
	cmd := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), onStub+"=1", "LD_LIBRARY_PATH="+dir), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+test)
	return string(out)
}

// sanitized is the environment of a process whose stand-in was built with AddressSanitizer, which
// finds what the stand-in uses after it was freed. SIGSEGV and its stack are the Go runtime's.
func sanitized(t *testing.T) []string {
	lib, err := exec.Command(ibverbs.CC, "-print-file-name=libasan.so").Output()
	require.NoError(t, err)
	return []string{"LD_PRELOAD=" + strings.TrimSpace(string(lib)), "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:use_sigaltstack=0"}
}

// TestStub plays the suite on the stand-in for libibverbs, test/tmstub.
func TestStub(t *testing.T) {
	if os.Getenv(onStub) == "" {
		t.Run("infiniband", func(t *testing.T) { again(t, stub(t), "TestStub", "TMSTUB_PACE=30") })
		if testlevel.Quick() {
			return
		}
		// What C is given must be neither freed nor moved.
		t.Run("clobbered", func(t *testing.T) {
			again(t, stub(t), "TestStub", "TMSTUB_UNEXPECTED=recv", "TMSTUB_INCOMPLETE=two", "GOGC=1", "GODEBUG=clobberfree=1")
		})
		t.Run("ethernet", func(t *testing.T) { again(t, stub(t), "TestStub", "TMSTUB_LINK=ethernet") })
		if !testlevel.Race { // one process has either checker
			t.Run("addresses", func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, buildStub(dir, "-fsanitize=address"))
				again(t, dir, "TestStub", sanitized(t)...)
			})
		}
		return
	}
	leftOut := leftOutAnd(nil)
	verbstest.Run(t, opener("tmstub0", "tmstub1"), verbstest.TagOptions{Silent: true, ByItself: true, SyncReqOfDriver: true, LeftOut: leftOut,
		RecvUnexpected: os.Getenv("TMSTUB_UNEXPECTED") == "recv", TwoIncomplete: os.Getenv("TMSTUB_INCOMPLETE") == "two"})
	t.Run("left out", func(t *testing.T) { leftOut.StillFails(t, "TestStub") })
}

// tell calls a function of the stand-in that takes two numbers.
func tell(t *testing.T, name string, a, b uintptr) uintptr {
	l, err := ccall.Load("libibverbs.so.1")
	require.NoError(t, err)
	fn, err := l.Symbol(name)
	require.NoError(t, err)
	c := ccall.Call{Fn: fn, Args: [6]uintptr{a, b}}
	c.Do()
	return c.Ret
}

// TestStubFaults: what a host lacks, or takes away, is said.
func TestStubFaults(t *testing.T) {
	if os.Getenv(onStub) == "" {
		again(t, stub(t), "TestStubFaults", "TMSTUB_MR_BYTES=1000000")
		return
	}
	t.Run("names", func(t *testing.T) { refusesNames(t, "tmstub0", "tmstub1") })
	t.Run("locked memory", func(t *testing.T) {
		pd, err := opener("tmstub0")(t, 1)[0].AllocPD()
		require.NoError(t, err)
		_, err = pd.RegMR(make([]byte, 1000001), 0)
		require.ErrorIs(t, err, syscall.ENOMEM)
		require.ErrorContains(t, err, "ulimit -l")
		mr, err := pd.RegMR(make([]byte, 1000000), 0)
		require.NoError(t, err)
		require.NoError(t, mr.Dereg())
		require.NoError(t, pd.Dealloc())
		_, err = newRC(opener("tmstub0")(t, 1)[0], 0, 1, transporttest.Options{MaxEager: 8 << 10, SRQDepth: 128}, nil)
		require.ErrorIs(t, err, syscall.ENOMEM)
		require.Equal(t, 1, strings.Count(err.Error(), "ulimit -l"), "%v", err)
	})
	t.Run("port down", func(t *testing.T) {
		portDown(t, "tmstub0", func(state string) {
			up := uintptr(0)
			if state == "up" {
				up = 1
			}
			require.Zero(t, int32(tell(t, "tmstub_port", 0, up)))
		})
	})
	t.Run("tags without the flag", func(t *testing.T) {
		t.Setenv("TMSTUB_TM_FLAGS", "0")
		require.Contains(t, opener("tmstub0")(t, 1)[0].Attr().NoTM, "no rendezvous")
	})
	t.Run("tag matching that is announced alone", func(t *testing.T) {
		t.Setenv("TMSTUB_SRQ_ERRNO", strconv.Itoa(int(syscall.ENOSPC)))
		require.Contains(t, opener("tmstub0")(t, 1)[0].Attr().NoTM, syscall.ENOSPC.Error())
	})
}

// TestStubDoorbells: a chain of up to 32 requests is posted by one call.
func TestStubDoorbells(t *testing.T) {
	if os.Getenv(onStub) == "" {
		again(t, stub(t), "TestStubDoorbells")
		return
	}
	const postSRQRecv, postSRQOps = 2, 3 // enum call of test/tmstub
	d := opener("tmstub0")(t, 1)[0]
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 256, WCFlags: verbs.WCExWithTMInfo})
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM, CQ: cq,
		SRQAttr: verbs.SRQAttr{MaxWR: 128, MaxSGE: 1}, TM: verbs.TMCap{MaxNumTags: 15, MaxOps: 128}})
	require.NoError(t, err)
	for n, calls := range map[int]uintptr{1: 1, 32: 1, 33: 2} {
		recvs, ops := make([]verbs.RecvWR, n), make([]verbs.OpsWR, n)
		for i := range n {
			ops[i].Opcode = verbs.WRTagSync
			if i > 0 {
				recvs[i-1].Next, ops[i-1].Next = &recvs[i], &ops[i]
			}
		}
		received, operated := tell(t, "tmstub_calls", postSRQRecv, 0), tell(t, "tmstub_calls", postSRQOps, 0)
		_, err = srq.PostSRQRecv(&recvs[0])
		require.NoError(t, err)
		_, err = srq.PostSRQOps(&ops[0])
		require.NoError(t, err)
		require.Equal(t, calls, tell(t, "tmstub_calls", postSRQRecv, 0)-received)
		require.Equal(t, calls, tell(t, "tmstub_calls", postSRQOps, 0)-operated)
	}
	require.NoError(t, srq.Destroy())
	require.NoError(t, cq.Destroy())
	require.NoError(t, pd.Dealloc())
}
