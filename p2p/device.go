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
	for _, c := range w.deviceConfigs(secret) {
		dev, err := soft.Open(c)
		if err != nil {
			return fmt.Errorf("device %s: %w%s", c.Name, err, w.remedy(c.Name, err))
		}
		if err := dev.Missing(); err != nil {
			w.parts.noSHM = err.Error()
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
	if async {
		cfg.PollingEnded = func() {
			for _, d := range w.parts.devs {
				d.PollingEnded()
			}
		}
	}
	var err error
	if w.eng, err = progress.New(cfg, w.openTransport); err != nil || !async {
		return err
	}
	for _, d := range w.parts.devs {
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

// async reports whether the device is to work by itself.
func (w *World) async() bool {
	if w.cfg.Async == settings.AsyncAuto {
		return w.cfg.AutoAsync() && w.transport() == settings.TMSRQ
	}
	return w.cfg.Async == settings.AsyncOn
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

// transport is the transport that was named or, with "auto", tmsrq, unless the job is too large for
// its two queue pairs a rank.
func (w *World) transport() string {
	switch {
	case w.cfg.Transport != settings.Auto:
		return w.cfg.Transport
	case 2*w.size > soft.MaxQP:
		return settings.RC
	}
	return settings.TMSRQ
}

// transportOn makes the transport of one device.
func (w *World) transportOn(dev verbs.Device, name string, sink transport.Sink) (transport.Transport, error) {
	job := w.parts.boot.Info().JobID
	if name == settings.TMSRQ {
		return tmsrq.New(tmsrq.Config{Device: dev, Rank: w.rank, Size: w.size, MaxEager: w.cfg.EagerLimit, Job: job,
			MaxTags: w.cfg.MaxTags}, sink)
	}
	return rc.New(rc.Config{Device: dev, Rank: w.rank, Size: w.size, MaxEager: w.cfg.EagerLimit, Job: job}, sink)
}

// deviceConfigs chooses the devices and their wires.
func (w *World) deviceConfigs(secret []byte) []soft.Config {
	var list []soft.Config
	within, _ := ports.Parse(w.cfg.Ports) // it is valid
	add := func(name string, fabric *soft.Fabric, wires ...string) {
		list = append(list, soft.Config{Name: name, Wires: wires, Fabric: fabric, Secret: secret, TLS: w.parts.tls, Rank: w.rank, Logger: w.cfg.Logger,
			TCPPorts: within, TCPListen: listenAddress(w.parts.boot.Info().LocalIP), PeerTimeout: w.cfg.PeerTimeout})
	}
	h, hooked := w.parts.boot.(*hook.Wiring)
	switch name := w.cfg.Device; {
	case hooked && h.Fabric != nil:
		for _, f := range append(slices.Clone(h.Near), h.Fabric) {
			add(soft.WireLoop, f, soft.WireLoop)
		}
	case name != settings.Auto:
		for wire := range strings.SplitSeq(name, ",") {
			add(wire, nil, wire)
		}
	case w.size == 1: // nothing else was asked for: no sockets are needed
		add(soft.WireLoop, soft.NewFabric(), soft.WireLoop)
	default:
		add(settings.Auto, nil, soft.WireSHM, soft.WireTCP)
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
