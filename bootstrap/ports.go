package bootstrap

import (
	"cmp"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/internal/ports"
)

// ports is the range of ports in effect.
func (o *Options) ports() (ports.Range, error) {
	s := cmp.Or(o.Ports, o.Getenv(EnvPorts))
	r, err := ports.Parse(s)
	if err != nil {
		return r, configErrorf("%s is %q: %v", EnvPorts, s, err)
	}
	return r, nil
}

// PortsNeeded says how many ports TAGMATCH_PORTS must leave a host with local of the size ranks of
// a job; local below 1: not known, it may have all.
func PortsNeeded(local, size int) string { return rendezvous.PortsNeeded(local, size) }
