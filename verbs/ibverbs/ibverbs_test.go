package ibverbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

func TestParsePort(t *testing.T) {
	for v, want := range map[string]struct {
		device string
		num    uint8
	}{"": {"", 0}, "mlx5_0": {"mlx5_0", 0}, "mlx5_0:2": {"mlx5_0", 2}} {
		device, num, err := parsePort(v)
		require.NoError(t, err)
		require.Equal(t, want.device, device)
		require.Equal(t, want.num, num)
	}
	for _, v := range []string{":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:x", "mlx5_0:256"} {
		_, _, err := parsePort(v)
		require.ErrorContains(t, err, portVariable)
		require.ErrorContains(t, err, "mlx5_0:1")
	}
}

func TestLocation(t *testing.T) {
	roce := location{link: abi.LinkLayerEthernet, mtu: verbs.MTU1024, gid: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}}
	ib := location{link: abi.LinkLayerInfiniBand, grh: true, mtu: verbs.MTU4096, gid: [16]byte{0xfe, 0x80, 15: 7}, lid: 0x1234}
	for _, l := range []location{roce, ib} {
		b := l.encode()
		require.LessOrEqual(t, len(b), 64)
		got, err := decodeLocation(b)
		require.NoError(t, err)
		require.Equal(t, l, got)
		for n := range b {
			_, err := decodeLocation(b[:n])
			require.ErrorContains(t, err, "no RDMA device")
		}
		for i, fault := range map[int]string{0: "version 9", 1: "link layer 9", 2: "MTU 9"} {
			bad := l.encode()
			bad[i] = 9
			_, err := decodeLocation(bad)
			require.ErrorContains(t, err, fault)
		}
	}
}

// TestWire: ports reach each other on one kind of link and, with InfiniBand, in one subnet.
func TestWire(t *testing.T) {
	roce := location{link: abi.LinkLayerEthernet, gid: [16]byte{15: 1}}
	ib := location{link: abi.LinkLayerInfiniBand, gid: [16]byte{0xfe, 0x80, 15: 1}, lid: 1}
	other := ib
	other.lid, other.gid[15] = 2, 2
	far := other
	far.gid[7] = 1
	for _, c := range []struct {
		a, b       location
		wire, says string
	}{
		{roce, roce, "roce", ""}, {ib, other, "infiniband", ""}, {ib, roce, "", "Ethernet"}, {ib, far, "", "subnets"},
	} {
		wire, err := c.a.wire(&c.b)
		require.Equal(t, c.wire, wire)
		if c.says != "" {
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, portVariable)
		}
	}
	require.Equal(t, abi.AHAttr{DLID: 2, PortNum: 3}, ib.to(&other, 3, 5))
	require.Equal(t, abi.AHAttr{IsGlobal: 1, DGID: roce.gid, SGIDIndex: 5, HopLimit: 64, PortNum: 3}, roce.to(&roce, 3, 5))
	other.grh = true
	require.Equal(t, abi.AHAttr{IsGlobal: 1, DGID: other.gid, DLID: 2, SGIDIndex: 5, HopLimit: 64, PortNum: 3}, ib.to(&other, 3, 5))
}

// TestLibrary: a library that cannot be loaded, and one that lacks functions, are named.
func TestLibrary(t *testing.T) {
	if os.Getenv("TAGMATCH_TEST_LIBRARY") != "" {
		_, err := driver{}.Devices()
		require.Error(t, err)
		_, err2 := driver{}.Open(deviceName, verbs.DriverConfig{})
		require.Equal(t, err, err2)
		t.Log(err)
		return
	}
	libm, err := filepath.Glob("/lib/*-linux-gnu/libm.so.6")
	require.NoError(t, err)
	for what, c := range map[string]struct {
		fill func(file string) error
		says []string
	}{
		"broken":  {func(file string) error { return os.WriteFile(file, []byte("no library"), 0o600) }, []string{libraryName, "install libibverbs"}},
		"too old": {func(file string) error { return os.Symlink(libm[0], file) }, []string{"too old", "ibv_get_device_list"}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, c.fill(filepath.Join(dir, libraryName)))
			cmd := exec.Command(os.Args[0], "-test.run", "^TestLibrary$", "-test.v")
			cmd.Env = append(os.Environ(), "TAGMATCH_TEST_LIBRARY=1", "LD_LIBRARY_PATH="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			for _, s := range c.says {
				require.Contains(t, string(out), s)
			}
		})
	}
}

// TestDevices: a host has the device, or it is said why not.
func TestDevices(t *testing.T) {
	names, err := driver{}.Devices()
	if err == nil {
		require.Equal(t, []string{"rdma"}, names)
	} else {
		require.Regexp(t, "no RDMA devices|"+libraryName+"|port", err.Error())
	}
	_, err = driver{}.Open("mlx5_0", verbs.DriverConfig{})
	require.ErrorContains(t, err, portVariable, "all ranks are given one name")
}

func TestFail(t *testing.T) {
	require.ErrorIs(t, fail("post_send", syscall.ENOMEM, ""), syscall.ENOMEM)
	require.ErrorIs(t, fail("poll_cq", 0, "a provider that sets no errno"), syscall.EIO)
	require.Equal(t, syscall.ENOMEM, errnoOf(fail("reg_mr", syscall.ENOMEM, "")))
}

// TestMapping: memory is zeros and given back, and a refused request is found by its address.
func TestMapping(t *testing.T) {
	m, err := newMapping()
	require.NoError(t, err)
	defer func() { require.NoError(t, m.free()) }()
	require.Zero(t, *m)
	require.Zero(t, index(&m.sends[0], batch, addr(&m.sends[0])))
	require.Equal(t, 7, index(&m.sends[0], batch, addr(&m.sends[7])))
	require.Zero(t, index(&m.sends[0], batch, 0), "the provider did not say")
	require.Zero(t, index(&m.sends[0], 7, addr(&m.sends[7])), "it is none of these")
}

// TestTranslate: of an error four fields are valid; an opcode that nobody knows is an error.
func TestTranslate(t *testing.T) {
	m, err := newMapping()
	require.NoError(t, err)
	defer func() { require.NoError(t, m.free()) }()
	c, w := &compQueue{d: &device{port: &port{mem: m}}}, &m.completions[1]
	*w = abi.WC{WRID: 1, Opcode: uint32(verbs.WCRecv), ByteLen: 5, QPNum: 7, ImmData: 0x01000000, WCFlags: uint32(verbs.WCFlagWithImm), VendorErr: 3}
	require.NoError(t, c.translate(1))
	require.Equal(t, verbs.WC{WRID: 1, Opcode: verbs.WCRecv, Flags: verbs.WCFlagWithImm, ByteLen: 5, QPNum: 7, Imm: 1, VendorErr: 3}, c.wc)
	w.Status, w.Opcode = uint32(verbs.WCRetryExcErr), 99
	require.NoError(t, c.translate(1))
	require.Equal(t, verbs.WC{WRID: 1, Status: verbs.WCRetryExcErr, QPNum: 7, VendorErr: 3}, c.wc)
	w.Status = 0
	for _, op := range []uint32{8, 99, 127, 135, ^uint32(0)} {
		w.Opcode = op
		require.ErrorIs(t, c.translate(1), syscall.EPROTO)
	}
}

// TestDead: what belongs to objects that are gone is refused before C sees it.
func TestDead(t *testing.T) {
	d := &device{port: &port{lib: &library{}}, closed: true}
	pd, cq := &domain{d: d}, &compQueue{d: d}
	_, err := d.AllocPD()
	require.ErrorIs(t, err, syscall.EBADF)
	_, err = d.CreateCQ(verbs.CQInitAttr{CQE: 1})
	require.ErrorIs(t, err, syscall.EBADF)
	_, err = d.CreateCompChannel()
	require.ErrorIs(t, err, syscall.EBADF)
	_, err = pd.RegMR(make([]byte, 1), 0)
	require.ErrorIs(t, err, syscall.EINVAL)
	_, err = pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 1}})
	require.ErrorIs(t, err, syscall.EINVAL)
	_, err = pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTRC})
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorIs(t, pd.Dealloc(), syscall.EINVAL)
	require.ErrorIs(t, cq.Arm(false), syscall.EINVAL)
	require.ErrorIs(t, cq.Destroy(), syscall.EINVAL)
	_, err = cq.Drain(nil, 1)
	require.ErrorIs(t, err, syscall.EINVAL)
}

func TestHostOrder(t *testing.T) {
	require.Equal(t, uint32(0x04030201), hostOrder(0x01020304), "tests run on little-endian machines")
	require.Equal(t, "mlx5_0", text([]byte("mlx5_0\x00rest")))
	require.Contains(t, lockedMemory(), "ulimit -l")
}

// TestSendable: a request is filled in exactly where the rules of RC have nothing against its
// opcode and flags, and the device does that opcode.
func TestSendable(t *testing.T) {
	m, err := newMapping()
	require.NoError(t, err)
	defer func() { require.NoError(t, m.free()) }()
	q := &queuePair{d: &device{}}
	does := []verbs.SendOpcode{verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMARead}
	for op := range verbs.SendOpcode(40) {
		for _, high := range []verbs.SendFlags{0, 1 << 8, 1 << 31} {
			for flags := high; flags < high+64; flags++ {
				rule := verbs.CheckSend(verbs.QPTRC, op, flags)
				_, _, err := q.fill(m, &verbs.SendWR{Opcode: op, Flags: flags})
				switch {
				case rule != nil:
					require.Equal(t, rule, err, "%v, flags %#x", op, flags)
				case slices.Contains(does, op):
					require.NoError(t, err, "%v, flags %#x", op, flags)
				default:
					isFault(t, err, "post_send", syscall.EOPNOTSUPP, op.String())
				}
			}
		}
	}
}
