package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// deviceRows opens the software device on all its wires, as auto does, and on each of them, and the
// devices of registered drivers, and shows their attributes. What this host lacks is a fact to
// show, not a fault.
func deviceRows(func(string) string) ([]row, error) {
	rows, err := autoRows()
	errs := []error{err}
	add := func(section string, open func() (verbs.Device, error), more ...row) {
		list, err := openedRows(section, open, more...)
		rows, errs = append(rows, list...), append(errs, err)
	}
	for _, wire := range []string{soft.WireSHM, soft.WireTCP} {
		section := "device " + wire
		var thresholds []row
		for _, t := range soft.Thresholds(wire) {
			thresholds = append(thresholds, row{section, "threshold", fmt.Sprint(t.Bytes, " bytes"), t.What})
		}
		add(section, openSoft(wire), thresholds...)
	}
	for _, d := range verbs.Drivers() {
		rows = append(rows, portRows(d)...)
		names, err := d.Devices()
		if err != nil {
			rows = append(rows, row{"driver " + d.Name(), notAvailable, err.Error(), ""})
		}
		for _, name := range names {
			add("device "+name, func() (verbs.Device, error) { return d.Open(name, verbs.DriverConfig{Lines: openLines}) },
				row{"device " + name, "driver", d.Name(), ""})
		}
	}
	return rows, errors.Join(errs...)
}

// portRows shows the ports that a driver chooses among. Why there is none Devices says too.
func portRows(d verbs.Driver) (rows []row) {
	l, ok := d.(verbs.PortLister)
	if !ok {
		return nil
	}
	ports, _ := l.Ports()
	for _, p := range ports {
		origin := ""
		if p.Chosen {
			origin = "chosen"
		}
		rows = append(rows, row{"driver " + d.Name(), "port " + p.Name, p.State, origin})
	}
	return rows
}

// notAvailable is the name of the row of what this host lacks.
const notAvailable = "not available"

func openLines(carried []byte) (verbs.LineDevice, error) {
	return soft.Open(soft.Config{Wires: []string{soft.WireTCP}, Carried: carried})
}

func openSoft(wire string) func() (verbs.Device, error) {
	return func() (verbs.Device, error) { return soft.Open(soft.Config{Wires: []string{wire}}) }
}

// openedRows shows a device that can be opened, or why it cannot.
func openedRows(section string, open func() (verbs.Device, error), more ...row) ([]row, error) {
	d, err := open()
	if err != nil {
		return []row{{section, notAvailable, err.Error(), ""}}, nil
	}
	rows := append(attrRows(section, d.Attr()), transportRows(section, d)...)
	return append(rows, more...), d.Close()
}

// transportRows shows for each transport whether it can run on a device, by trying.
func transportRows(section string, d verbs.Device) (rows []row) {
	const receives, tags = 128, 16
	for _, t := range []struct {
		name string
		open func() (transport.Transport, error)
	}{
		{rc.Mode, func() (transport.Transport, error) {
			return rc.New(rc.Config{Device: d, Size: 1, SRQDepth: receives}, nil)
		}},
		{tmsrq.Mode, func() (transport.Transport, error) {
			return tmsrq.New(tmsrq.Config{Device: d, Size: 1, SRQDepth: receives, MaxTags: tags}, nil)
		}},
	} {
		can := "can run"
		opened, err := t.open()
		if err == nil {
			err = opened.Close()
		}
		if err != nil {
			can = "cannot run: " + err.Error()
		}
		rows = append(rows, row{section, "transport " + t.name, can, ""})
	}
	return rows
}

// autoRows shows which wires a rank on this host would use, as far as that depends on the host:
// each other rank is reached over the first that both have and that works between the two, see
// Metrics of package p2p.
func autoRows() ([]row, error) {
	const section = "device auto"
	d, err := soft.Open(soft.Config{})
	if err != nil {
		return []row{{section, notAvailable, err.Error(), ""}}, nil
	}
	rows := []row{{section, "wires, best first", strings.Join(d.Attr().Wires, ", "), ""}}
	if err := d.Missing(); err != nil {
		rows = append(rows, row{section, "without shared memory", err.Error(), ""})
	}
	return rows, d.Close()
}

func attrRows(section string, a verbs.DeviceAttr) []row {
	rows := []row{
		{section, "tag matching", tagMatching(a.TM), a.NoTM},
		{section, "most bytes at a time", fmt.Sprint(a.MaxMsgSize), "a longer message is read piece by piece"},
		{section, "largest inline", fmt.Sprint(a.MaxInline, " bytes"), ""},
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"queue pairs", a.MaxQP}, {"work requests a queue", a.MaxQPWR}, {"scatter/gather entries", a.MaxSGE},
		{"completions a queue", a.MaxCQE}, {"shared receives a queue", a.MaxSRQWR}, {"memory regions", a.MaxMR},
		{"reads in flight, answered", a.MaxQPRdAtom}, {"reads in flight, asked", a.MaxQPInitRdAtom},
	} {
		rows = append(rows, row{section, "most " + n.name, fmt.Sprint(n.value), ""})
	}
	return rows
}

func tagMatching(c verbs.TMCaps) string {
	if c.Flags&verbs.TMCapRC == 0 {
		return "none: software matches"
	}
	return fmt.Sprintf("on RC, %d tags, pieces of a buffer: %d, %d operations at a time, rendezvous headers of %d bytes", c.MaxNumTags,
		c.MaxSGE, c.MaxOps, c.MaxRndvHdrSize)
}
