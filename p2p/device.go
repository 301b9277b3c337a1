package p2p

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/ports"
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
	var devs []*soft.Device
	for _, c := range w.deviceConfigs(secret) {
		dev, err := soft.Open(c)
		if err != nil {
			return fmt.Errorf("device %s: %w%s", c.Name, err, w.remedy(c.Name, err))
		}
		if err := dev.Missing(); err != nil {
			w.parts.noSHM = err.Error()
		}
		w.parts.devs = append(w.parts.devs, dev)
		devs = append(devs, dev)
	}
	cfg := progress.Config{
		Rank: w.rank, Size: w.size,
		EagerLimit: w.cfg.EagerLimit, UnexpectedLimit: w.cfg.UnexpectedLimit, SendLimit: w.cfg.SendLimit,
		SpinLimit: w.cfg.SpinLimit, Manual: w.cfg.Progress == ProgressManual, Logger: w.cfg.Logger,
		MaxTags: w.cfg.MaxTags, OffloadMin: cmp.Or(w.cfg.OffloadMin, defaultOffloadMin), Lost: w.reportGivenUp,
		Contexts: &w.contexts, ContextMask: contexts.Mask, SourceMask: sourceMask,
		TagText: describeTag,
	}
	async := w.async()
	if async {
		cfg.PollingEnded = func() {
			for _, d := range devs {
				d.PollingEnded()
			}
		}
	}
	var err error
	if w.eng, err = progress.New(cfg, w.openTransport); err != nil || !async {
		return err
	}
	for _, d := range devs {
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
	case device == deviceSHM:
		return w.insists()
	}
	return ""
}

// async tells whether the device is to work by itself.
func (w *World) async() bool {
	if w.cfg.Async == AsyncAuto {
		return w.cfg.autoAsync() && w.transport() == transportTMSRQ
	}
	return w.cfg.Async == AsyncOn
}

// autoAsync tells what AsyncAuto comes to, in a job that is not too large for tmsrq. With one
// thread for Go code the device could not work while the program computes.
func (c *Config) autoAsync() bool {
	return orAuto(c.Transport) == auto && c.Progress != ProgressManual && c.MaxTags >= 0 && runtime.GOMAXPROCS(0) > 1
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
		name := transportRC
		if i == 0 {
			name = w.transport()
		}
		open = append(open, func(sink transport.Sink) (transport.Transport, error) { return w.transportOn(dev, name, sink) })
	}
	return mux.New(w.size, sink, open...)
}

// transport is the transport that was named or, with "auto", tmsrq, unless the job is too large for
// its two queue pairs a rank.
func (w *World) transport() string {
	switch {
	case orAuto(w.cfg.Transport) != auto:
		return w.cfg.Transport
	case 2*w.size > soft.MaxQP:
		return transportRC
	}
	return transportTMSRQ
}

// transportOn makes the transport of one device.
func (w *World) transportOn(dev verbs.Device, name string, sink transport.Sink) (transport.Transport, error) {
	job := w.parts.boot.Info().JobID
	if name == transportTMSRQ {
		return tmsrq.New(tmsrq.Config{Device: dev, Rank: w.rank, Size: w.size, MaxEager: w.cfg.eagerLimit(), Job: job,
			MaxTags: w.cfg.MaxTags}, sink)
	}
	return rc.New(rc.Config{Device: dev, Rank: w.rank, Size: w.size, MaxEager: w.cfg.eagerLimit(), Job: job}, sink)
}

// deviceConfigs chooses the devices and their wires.
func (w *World) deviceConfigs(secret []byte) []soft.Config {
	var list []soft.Config
	within, _ := ports.Parse(w.cfg.Ports) // it is valid
	add := func(name string, fabric *soft.Fabric, wires ...string) {
		list = append(list, soft.Config{Name: name, Wires: wires, Fabric: fabric, Secret: secret, TLS: w.parts.tls, Rank: w.rank, Logger: w.cfg.Logger,
			TCPPorts: within, TCPListen: listenAddress(w.parts.boot.Info().LocalIP), PeerTimeout: w.cfg.peerTimeout()})
	}
	h, hooked := w.parts.boot.(*hook.Wiring)
	switch name := orAuto(w.cfg.Device); {
	case hooked && h.Fabric != nil:
		for _, f := range append(slices.Clone(h.Near), h.Fabric) {
			add(soft.WireLoop, f, soft.WireLoop)
		}
	case name != auto:
		for wire := range strings.SplitSeq(name, ",") {
			add(wire, nil, wire)
		}
	case w.size == 1: // nothing else was asked for: no sockets are needed
		add(soft.WireLoop, soft.NewFabric(), soft.WireLoop)
	default:
		add(auto, nil, soft.WireSHM, soft.WireTCP)
	}
	return list
}

// listenAddress is the address at which the other ranks can reach this host, according to the
// launcher's connections.
func listenAddress(ip netip.Addr) string {
	if !ip.IsValid() || ip.IsLoopback() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return net.JoinHostPort(ip.String(), "0")
}

// checkDevice returns an error that names the fault of a Config.Device, or nil.
func checkDevice(name string) error {
	if name == "" || name == auto {
		return nil
	}
	list := strings.Split(name, ",")
	if len(list) == 1 {
		return known(name, Devices())
	}
	for i, n := range list {
		switch {
		case n == auto:
			return fmt.Errorf("auto stands alone: %s", oneOf(Devices()))
		case !slices.Contains(Devices(), n):
			return fmt.Errorf("there is no device %q: %s", n, oneOf(Devices()))
		case slices.Contains(list[:i], n):
			return fmt.Errorf("%s is named twice", n)
		}
	}
	return nil
}
