package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// testDriver has the devices that a test gives it, which are the software device.
type testDriver struct {
	name    string
	devices []string
	err     error
}

var some, none = &testDriver{name: "some"}, &testDriver{name: "none"}

func init() {
	verbs.Register(some)
	verbs.Register(none)
}

func (d *testDriver) Name() string               { return d.name }
func (d *testDriver) Devices() ([]string, error) { return d.devices, d.err }

func (d *testDriver) Open(name string, cfg verbs.DriverConfig) (verbs.Device, error) {
	if name == "broken0" {
		return nil, errors.New("its port is down")
	}
	dev, err := cfg.Lines(nil)
	if name == "plain0" {
		return plainDevice{dev}, err
	}
	return dev, err
}

func (d *testDriver) Ports() ([]verbs.Port, error) {
	if d.err != nil {
		return nil, d.err
	}
	return []verbs.Port{{Name: "a:1", State: "down"}, {Name: "a:2", State: "active", Chosen: true}}, nil
}

// plainDevice matches no tags, and says why.
type plainDevice struct{ verbs.Device }

func (plainDevice) Attr() verbs.DeviceAttr {
	return verbs.DeviceAttr{MaxQPWR: 64, MaxCQE: 1 << 15, MaxSRQWR: 128, MaxMR: 64, NoTM: "its port is Ethernet"}
}

// TestInfoOfDrivers: the devices of drivers that are linked in are shown as the others are, with
// their ports, and why a transport cannot run on one.
func TestInfoOfDrivers(t *testing.T) {
	defer func() { some.devices, none.err = nil, nil }()
	some.devices, none.err = []string{"some0", "plain0", "broken0"}, errors.New("no hardware")
	code, out, errs := command("info")
	require.Zero(t, code, errs)
	require.Regexp(t, `(?s)driver none\n +not available +no hardware *\n.*driver some\n +port a:1 +down *\n +port a:2 +active +\(chosen\)\n.*`+
		`device some0\n.*most queue pairs +\d.*transport rc +can run *\n +transport tmsrq +can run *\n.*driver +some *\n`+
		`.*device plain0\n +tag matching +none: software matches +\(its port is Ethernet\) *\n.*transport rc +can run *\n`+
		` +transport tmsrq +cannot run: transport/tmsrq: .*no\s+tag\s+matching.*its\s+port\s+is\s+Ethernet.*device broken0\n +not available +its port is down *\n`, out)
	require.Regexp(t, `devices to choose from +auto, shm, tcp,[^(]* some0, plain0,\s+broken0\n`, out)
}
