package p2p

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/internal/settings"
)

// deviceName names the wires to the other ranks or, where there are none, the devices.
func (w *World) deviceName(wires []string) string {
	used := map[string]bool{}
	for rank, name := range wires {
		if rank != w.rank && name != "" {
			used[name] = true
		}
	}
	if len(used) > 0 {
		return strings.Join(slices.Sorted(maps.Keys(used)), "+")
	}
	names := make([]string, 0, len(w.parts.devs))
	for _, dev := range w.parts.devs {
		names = append(names, dev.Name())
	}
	return strings.Join(names, ",")
}

// tellWires logs, once, which ranks of this machine are reached without shared memory although it
// was asked for, and why.
func (w *World) tellWires(cards []card) {
	first, _, _ := strings.Cut(w.cfg.Device, ",")
	if w.cfg.Logger == nil || first != settings.Auto && first != settings.SHM {
		return
	}
	why := map[string][]int{}
	for rank, wire := range w.eng.Wires() {
		if c := &cards[rank]; rank != w.rank && wire == settings.TCP && c.near(&cards[w.rank]) {
			reason := c.apart(&cards[w.rank])
			why[reason] = append(why[reason], rank)
		}
	}
	if len(why) == 0 {
		return
	}
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		all = append(all, ranks.List(why[reason])+": "+reason)
	}
	w.cfg.Logger.Warn("TCP carries messages between ranks of one machine, since they cannot share memory", "rank", w.rank,
		"why", strings.Join(all, "; "))
}

// tellTLS logs, once, that TLS is on.
func (w *World) tellTLS() {
	if w.parts.tls != nil && w.size > 1 && w.cfg.Logger != nil {
		w.cfg.Logger.Info("connections between hosts are encrypted", "rank", w.rank, "tls", w.parts.tls.Kind())
	}
}

// near reports whether two ranks are on one machine.
func (c *card) near(o *card) bool {
	if c.Boot != "" && o.Boot != "" {
		return c.Boot == o.Boot
	}
	return c.Host == o.Host
}

// apart returns why two ranks of one machine cannot share memory.
func (c *card) apart(mine *card) string {
	switch {
	case mine.NoSHM != "":
		return "this rank cannot use shared memory: " + mine.NoSHM
	case c.NoSHM != "":
		return "it cannot use shared memory: " + c.NoSHM
	}
	return "it runs as another user, or in another namespace of processes, network or IPC"
}

// insists is the hint added to a shared-memory error where Config.Device names shared memory.
func (w *World) insists() string {
	if !slices.Contains(strings.Split(w.cfg.Device, ","), settings.SHM) {
		return ""
	}
	return fmt.Sprintf("; device auto instead of %s (TAGMATCH_DEVICE) uses TCP where memory cannot be shared", w.cfg.Device)
}

// bootID identifies the running kernel, and so the machine; empty where it cannot be read.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
