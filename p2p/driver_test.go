package p2p_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
	"github.com/tagmatch/tagmatch/verbs"
)

// testDriver has a device made of the software device, of which programs see no more than
// verbs.Device, and one that cannot be opened.
type testDriver struct{}

func init() { verbs.Register(testDriver{}) }

type testDevice struct {
	verbs.Device
	name string
}

func (d testDevice) Name() string { return d.name }

// plainDevice matches no tags.
type plainDevice struct{ testDevice }

func (d plainDevice) Attr() verbs.DeviceAttr {
	attr := d.testDevice.Attr()
	attr.TM, attr.NoTM = verbs.TMCaps{}, "it is plain"
	return attr
}

func (testDriver) Name() string { return "test" }
func (testDriver) Devices() ([]string, error) {
	return []string{"test0", "plain0", "small0", "broken0"}, nil
}

func (testDriver) EagerLimit(device string) int {
	return map[string]int{"small0": 1000}[device]
}

func (testDriver) Open(name string, cfg verbs.DriverConfig) (verbs.Device, error) {
	if name == "broken0" {
		return nil, errors.New("its port is down")
	}
	dev, err := cfg.Lines(nil)
	if err != nil {
		return nil, err
	}
	if name == "plain0" {
		return plainDevice{testDevice{dev, name}}, nil
	}
	return testDevice{dev, name}, nil
}

// TestDriver: a device of a registered driver carries messages, alone and beside another one, also
// where it has none of the optional interfaces.
func TestDriver(t *testing.T) {
	for _, device := range []string{"test0", "test0,tcp", "tcp,test0"} {
		t.Run(device, func(t *testing.T) {
			skipUnlessLinux(t, device)
			p2ptest.RunConfig(t, 2, p2p.Config{Device: device, Async: p2p.AsyncOn, OffloadMin: -1}, func(w *p2p.World) {
				memory, err := w.Alloc(4 << 20)
				require.NoError(t, err)
				exchange(t, w, memory.Bytes(), 0, 1000, 1<<20)
				exchange(t, w, make([]byte, 4<<20), 0, 1000, 1<<20)
				require.NoError(t, memory.Close())
			})
		})
	}
	for device, want := range map[string]string{"test0": "tmsrq", "plain0": "rc"} {
		t.Run("auto on "+device, func(t *testing.T) {
			skipUnlessLinux(t, device)
			p2ptest.RunConfig(t, 2, p2p.Config{Device: device}, func(w *p2p.World) {
				require.Equal(t, want, w.Metrics().Transport)
				exchange(t, w, make([]byte, 3<<20), 0, 1000, 1<<20)
			})
		})
	}
	t.Run("what suits a device", func(t *testing.T) {
		skipUnlessLinux(t, "small0")
		p2ptest.RunConfig(t, 2, p2p.Config{Device: "tcp,small0"}, func(w *p2p.World) {
			exchange(t, w, make([]byte, 3000), 1000)
			require.EqualValues(t, 1, w.Metrics().EagerSent)
			exchange(t, w, make([]byte, 3000), 1001)
			require.EqualValues(t, 1, w.Metrics().EagerSent)
		})
	})
	_, err := p2p.Init(background, p2p.Config{Device: "plain0", Transport: "tmsrq"})
	require.ErrorContains(t, err, "no tag matching (it is plain): use transport rc")
	_, err = p2p.Init(background, p2p.Config{Device: "test0,broken0"})
	require.ErrorContains(t, err, "device broken0: its port is down")
	_, err = p2p.Init(background, p2p.Config{Device: "test0", TLS: "secret"})
	require.ErrorContains(t, err, "device test0: its messages are not encrypted")
}
