package p2p

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/p2p/internal/hook"
	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/mux"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// open makes the devices, the transport and the engine.
func (w *World) open(secret []byte) error {
	for _, o := range w.openings(secret) {
		dev, err := o.open()
		if err != nil {
			return fmt.Errorf("device %s: %w%s", o.name, err, w.remedy(o.name, err))
		}
		w.parts.devs = append(w.parts.devs, dev)
	}
	cfg := progress.Config{
		Rank: w.rank, Size: w.size,
		EagerLimit: w.cfg.EagerLimit, UnexpectedLimit: w.cfg.UnexpectedLimit, SendLimit: w.cfg.SendLimit,
		SpinLimit: w.cfg.SpinLimit, Manual: w.cfg.Progress == settings.ProgressManual, Logger: w.cfg.Logger,
		MaxTags: w.cfg.MaxTags, OffloadMin: w.cfg.OffloadMin, Lost: w.reportGivenUp,
		Contexts: &w.contexts, ContextMask: contexts.Mask, SourceMask: sourceMask,
		TagText: describeTag,
	}
	async := w.async()
	if len(async) > 0 {
		cfg.PollingEnded = func() {
			for _, d := range async {
				d.PollingEnded()
			}
		}
	}
	var err error
	if w.eng, err = progress.New(cfg, w.openTransport); err != nil {
		return err
	}
	for _, d := range async {
		if err := d.Async(w.eng.Owner()); err != nil {
			return err
		}
	}
	return nil
}

// remedy is what to do where a device cannot be opened.
func (w *World) remedy(device string, err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": " + bootstrap.PortsNeeded(w.parts.boot.Info().LocalSize, w.size)
	case device == settings.SHM:
		return w.insists()
	}
	return ""
}

// async are the devices that are to be told to work by themselves.
func (w *World) async() (list []verbs.Async) {
	if w.cfg.Async == settings.AsyncOff || w.cfg.Async == settings.AsyncAuto && !w.cfg.AutoAsync() {
		return nil
	}
	for _, d := range w.parts.devs {
		if a, ok := d.(verbs.Async); ok {
			list = append(list, a)
		}
	}
	return list
}

// openTransport makes the transport: one for each device, joined by mux where there are several.
// Only the first device may match tags, as a receive can be in one tag list only; messages of the
// other devices are matched in software.
func (w *World) openTransport(sink transport.Sink) (transport.Transport, error) {
	if len(w.parts.devs) == 1 {
		return w.transportOn(w.parts.devs[0], w.transport(), sink)
	}
	var open []func(transport.Sink) (transport.Transport, error)
	for i, dev := range w.parts.devs {
		name := settings.RC
		if i == 0 {
			name = w.transport()
		}
		open = append(open, func(sink transport.Sink) (transport.Transport, error) { return w.transportOn(dev, name, sink) })
	}
	return mux.New(w.size, sink, open...)
}

// transport is the transport that was named or, with "auto", tmsrq where the first device matches
// tags.
func (w *World) transport() string {
	switch {
	case w.cfg.Transport != settings.Auto:
		return w.cfg.Transport
	case w.parts.devs[0].Attr().TM.Flags&verbs.TMCapRC == 0:
		return settings.RC
	}
	return settings.TMSRQ
}

// transportOn makes the transport of one device.
func (w *World) transportOn(dev verbs.Device, name string, sink transport.Sink) (transport.Transport, error) {
	job := w.parts.boot.Info().JobID
	if name == settings.TMSRQ {
		return tmsrq.New(tmsrq.Config{Device: dev, Rank: w.rank, Size: w.size, MaxEager: w.cfg.EagerLimit, Job: job,
			Logger: w.cfg.Logger, MaxTags: w.cfg.MaxTags}, sink)
	}
	return rc.New(rc.Config{Device: dev, Rank: w.rank, Size: w.size, MaxEager: w.cfg.EagerLimit, Job: job, Logger: w.cfg.Logger}, sink)
}

// opening is a device to be opened.
type opening struct {
	name string
	open func() (verbs.Device, error)
}

// openings chooses the devices.
func (w *World) openings(secret []byte) (list []opening) {
	add := func(name string, fabric *soft.Fabric, wires ...string) {
		list = append(list, opening{name, func() (verbs.Device, error) { return w.openSoft(name, secret, nil, fabric, wires...) }})
	}
	h, hooked := w.parts.boot.(*hook.Wiring)
	switch names := w.cfg.Device; {
	case hooked && h.Fabric != nil:
		for _, f := range append(slices.Clone(h.Near), h.Fabric) {
			add(soft.WireLoop, f, soft.WireLoop)
		}
	case names != settings.Auto:
		for name := range strings.SplitSeq(names, ",") {
			if d := settings.Driver(name); d != nil {
				list = append(list, opening{name, func() (verbs.Device, error) { return w.openDriver(d, name, secret) }})
			} else {
				add(name, nil, name)
			}
		}
	case w.size == 1: // nothing else was asked for: no sockets are needed
		add(soft.WireLoop, soft.NewFabric(), soft.WireLoop)
	default:
		add(settings.Auto, nil, soft.WireSHM, soft.WireTCP)
	}
	return list
}

// openSoft opens a software device.
func (w *World) openSoft(name string, secret, carried []byte, fabric *soft.Fabric, wires ...string) (*soft.Device, error) {
	within, _ := ports.Parse(w.cfg.Ports) // it is valid
	dev, err := soft.Open(soft.Config{Name: name, Wires: wires, Carried: carried, Fabric: fabric, Secret: secret, TLS: w.parts.tls, Rank: w.rank, Logger: w.cfg.Logger,
		TCPPorts: within, TCPListen: listenAddress(w.parts.boot.Info().LocalIP), PeerTimeout: w.cfg.PeerTimeout})
	if err != nil {
		return nil, err
	}
	if err := dev.Missing(); err != nil {
		w.parts.noSHM = err.Error()
	}
	return dev, nil
}

// openDriver opens a device of a registered driver. Whoever asks for TLS is not to have messages
// that go in plain.
func (w *World) openDriver(d verbs.Driver, name string, secret []byte) (verbs.Device, error) {
	if w.parts.tls != nil {
		return nil, errors.New("its messages are not encrypted, and TLS is asked for: use tcp between hosts, or no TLS where only the job's ranks use the network")
	}
	return d.Open(name, verbs.DriverConfig{Rank: w.rank, Logger: w.cfg.Logger,
		Lines: func(carried []byte) (verbs.LineDevice, error) {
			return w.openSoft(name+" (lines)", secret, carried, nil, soft.WireTCP)
		}})
}

// listenAddress is the address at which the other ranks can reach this host, according to the
// launcher's connections.
func listenAddress(ip netip.Addr) string {
	if !ip.IsValid() || ip.IsLoopback() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return net.JoinHostPort(ip.String(), "0")
}
