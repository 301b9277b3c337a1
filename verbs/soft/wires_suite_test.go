//go:build linux

package soft_test

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

func shmOpener(cfg soft.Config) verbstest.Opener {
	cfg.Wires = []string{soft.WireSHM}
	return opener(func(int) soft.Config { return cfg })
}

func tcpOpener(t *testing.T, n int) []verbs.Device {
	return opener(func(int) soft.Config { return soft.Config{Wires: []string{soft.WireTCP}} })(t, n)
}

func tlsOpener() verbstest.Opener {
	cfg := softtest.WithTLS(soft.Config{Wires: []string{soft.WireTCP}})
	return opener(func(int) soft.Config { return cfg })
}

// soonWraps is where counts of unexpected messages start, so that they wrap soon.
const soonWraps = 65_000

// wireOptions tells the suite of such devices, with memory that is read directly or by packets.
func wireOptions(direct bool) verbstest.TagOptions {
	return verbstest.TagOptions{InitialCount: soonWraps, OpenReads: direct}
}

// opener opens devices on wires between processes.
func opener(config func(rank int) soft.Config) verbstest.Opener {
	return func(t *testing.T, n int) []verbs.Device {
		t.Helper()
		devs := make([]verbs.Device, n)
		for i := range devs {
			cfg := config(i)
			cfg.Rank, cfg.Secret = i, []byte("secret")
			d, err := soft.Open(softtest.WithTM(cfg, softtest.TM{InitialCount: soonWraps}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			devs[i] = d
			if slices.Equal(cfg.Wires, []string{soft.WireSHM}) {
				for _, o := range devs[:i] {
					warm(t, o, d)
				}
			}
		}
		return devs
	}
}

// warm connects two devices and leaves no objects. The suite counts polls in places, and a
// connection takes some time.
func warm(t *testing.T, a, b verbs.Device) {
	t.Helper()
	type end struct {
		pd verbs.PD
		cq verbs.CQ
		qp verbs.QP
	}
	mk := func(d verbs.Device) *end {
		e := &end{pd: must(d.AllocPD()), cq: must(d.CreateCQ(verbs.CQInitAttr{CQE: 16}))}
		e.qp = must(e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
		return e
	}
	x, y := mk(a), mk(b)
	soft.RaiseQP(t, x.qp, b, y.qp.Num(), 7)
	soft.RaiseQP(t, y.qp, a, x.qp.Num(), 7)
	_ = must(y.qp.PostRecv(&verbs.RecvWR{}))
	_ = must(x.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}))
	var wc [4]verbs.WC
	for done, start := 0, time.Now(); done < 2; {
		for _, e := range []*end{x, y} {
			done += must(verbstest.Poll(e.cq, wc[:]))
		}
		if time.Since(start) > testlevel.Patience(20*time.Second) {
			t.Fatal("the devices do not connect")
		}
		time.Sleep(time.Microsecond) // they do so in the background: with one processor that needs it to be idle
	}
	for _, e := range []*end{x, y} {
		for _, f := range []func() error{e.qp.Destroy, e.cq.Destroy, e.pd.Dealloc} {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSHM runs the device suite over shared memory; one goroutine drives both devices.
func TestSHM(t *testing.T) {
	t.Run("direct", func(t *testing.T) { verbstest.Run(t, shmOpener(soft.Config{}), wireOptions(true)) })
	t.Run("packets", func(t *testing.T) {
		verbstest.Run(t, shmOpener(softtest.WithoutDirect(soft.Config{RingBytes: 8192})), wireOptions(false))
	})
}

func TestTCPSuite(t *testing.T) {
	defer goleak.VerifyNone(t)
	verbstest.Run(t, tcpOpener, wireOptions(false))
}

// TestTLSSuite runs the device suite over TCP with TLS.
func TestTLSSuite(t *testing.T) {
	testlevel.SkipIfQuick(t)
	defer goleak.VerifyNone(t)
	verbstest.Run(t, tlsOpener(), wireOptions(false))
}

// TestRerouted runs the device suite where shared memory turns out not to work, so that TCP takes
// over: rings must have one size.
func TestRerouted(t *testing.T) {
	testlevel.SkipIfQuick(t)
	open := opener(func(rank int) soft.Config { return soft.Config{RingBytes: 8192 << rank} })
	verbstest.Run(t, open, wireOptions(false))
}
