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
	return noTags{dev}, err
}

// noTags is a device that says why it has no tag matching.
type noTags struct{ verbs.Device }

func (noTags) Attr() verbs.DeviceAttr {
	return verbs.DeviceAttr{NoTM: "its port is Ethernet", MaxQP: 1}
}

// TestInfoOfDrivers: the devices of drivers that are linked in are shown as the others are.
func TestInfoOfDrivers(t *testing.T) {
	defer func() { some.devices, none.err = nil, nil }()
	some.devices, none.err = []string{"some0", "broken0"}, errors.New("no hardware")
	code, out, errs := command("info")
	require.Zero(t, code, errs)
	require.Regexp(t, `(?s)driver none\n +not available +no hardware *\n.*device some0\n +tag matching +none: software matches +\(its port is Ethernet\) *\n.*most queue pairs +\d.*driver +some *\n.*device broken0\n +not available +its port is down *\n`, out)
	require.Regexp(t, `devices to choose from +auto, shm, tcp, some0, broken0 *\n`, out)
}
