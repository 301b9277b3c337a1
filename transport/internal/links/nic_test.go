package links

import (
	"bytes"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// nic is a device that does not grant ReadFaults, although it has it, and has events to tell.
type nic struct {
	verbs.Device
	events []verbs.AsyncEvent
}

func (d *nic) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return nicPD{pd}, err
}

func (d *nic) PollAsync() (verbs.AsyncEvent, bool) {
	if len(d.events) == 0 {
		return d.Device.PollAsync()
	}
	ev := d.events[0]
	d.events = d.events[1:]
	return ev, true
}

type nicPD struct{ verbs.PD }

func (p nicPD) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	attr.ReadFaults = false
	return p.PD.CreateQP(attr)
}

// TestReadFaultsNotGranted: a read that fails ends the link, where nothing else was granted.
func TestReadFaultsNotGranted(t *testing.T) {
	r := newTrioOn(t, 16, func(dev verbs.Device) verbs.Device { return &nic{Device: dev} })
	require.NoError(t, r.a.Read(1, make([]byte, 8), 0, 0, 1))
	r.poll(r.a, r.b)
	require.Equal(t, []int{1}, r.sink.lost)
	require.Len(t, r.sink.reads, 1)
	require.ErrorIs(t, r.sink.reads[0], transport.ErrAccused)
}

// TestDeviceEvents: a port that goes down and comes back is logged; a device that works no more
// ends the transport.
func TestDeviceEvents(t *testing.T) {
	var out bytes.Buffer
	dev := &nic{Device: openDevice(t)}
	tr := self(t, dev, &endSink{})
	tr.cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	tr.until = 0
	dev.events = []verbs.AsyncEvent{{Type: verbs.EventPortErr}, {Type: verbs.EventPortActive}}
	tr.poll(t)
	require.Regexp(t, "(?s)event=PORT_ERR.*event=PORT_ACTIVE", out.String())
	dev.events = []verbs.AsyncEvent{{Type: verbs.EventDeviceFatal, Err: syscall.EIO}}
	tr.until = 0
	n, err := tr.End(0, true)
	require.Zero(t, n)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "DEVICE_FATAL")
	require.Equal(t, err, tr.Begin())
}

// TestTimers: a queue pair gives up a peer that does not answer, and waits for one that has no
// receives.
func TestTimers(t *testing.T) {
	tr := self(t, openDevice(t), &endSink{})
	for _, qp := range tr.peers[0].pairs() {
		attr, _, err := qp.Query()
		require.NoError(t, err)
		require.EqualValues(t, 6, attr.RetryCnt)
		require.EqualValues(t, 7, attr.RNRRetry)
		require.NotZero(t, attr.Timeout, "0 is for ever")
	}
}
