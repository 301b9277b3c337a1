package p2p

import (
	"bytes"
	"crypto/sha256"
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
func (w *World) tellWires(all cards) {
	first, _, _ := strings.Cut(w.cfg.Device, ",")
	if w.cfg.Logger == nil || first != settings.Auto && first != settings.SHM {
		return
	}
	why, mine := map[string][]int{}, all.of(w.rank)
	mine.noSHM = []byte(w.parts.noSHM) // not cut
	for rank, wire := range w.eng.Wires() {
		if rank == w.rank || wire != settings.TCP {
			continue
		}
		if c := all.of(rank); c.near(&mine) {
			reason := c.apart(&mine)
			why[reason] = append(why[reason], rank)
		}
	}
	if len(why) == 0 {
		return
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		reasons = append(reasons, ranks.List(why[reason])+": "+reason)
	}
	w.cfg.Logger.Warn("TCP carries messages between ranks of one machine, since they cannot share memory", "rank", w.rank,
		"why", strings.Join(reasons, "; "))
}

// tellTLS logs, once, that TLS is on.
func (w *World) tellTLS() {
	if w.parts.tls != nil && w.size > 1 && w.cfg.Logger != nil {
		w.cfg.Logger.Info("connections between hosts are encrypted", "rank", w.rank, "tls", w.parts.tls.Kind())
	}
}

// near reports whether two ranks are on one machine.
func (c *card) near(o *card) bool {
	if len(c.boot) > 0 && len(o.boot) > 0 {
		return bytes.Equal(c.boot, o.boot)
	}
	return bytes.Equal(c.host, o.host)
}

// apart returns why two ranks of one machine cannot share memory.
func (c *card) apart(mine *card) string {
	switch {
	case len(mine.noSHM) > 0:
		return "this rank cannot use shared memory: " + string(mine.noSHM)
	case len(c.noSHM) > 0:
		return "it cannot use shared memory: " + string(c.noSHM)
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
func bootID() []byte {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return sum[:8]
}
