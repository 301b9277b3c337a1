package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen listens at host for a rank of the job, at a port of the range.
func (j *Job) Listen(ctx context.Context, cfg *Config, host string) (net.Listener, error) {
	ln, err := cfg.Ports.Listen(ctx, host)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %s", err, PortsNeeded(j.LocalSize, j.Size))
	}
	return ln, err
}

// PortsNeeded says how many ports the range must leave a host with local of the size ranks of a
// job; local below 1: not known, it may have all.
func PortsNeeded(local, size int) string {
	if local < 1 {
		local = size
	}
	n, more := local+1, min(local, relays(size))
	s := ""
	if more > 0 {
		s = fmt.Sprintf(", and %d for ranks that pass on what others have put", more)
	}
	return fmt.Sprintf("a host with %d ranks needs %d ports (%s): one for the data of each rank, one for the rendezvous at rank 0%s",
		local, n+more, EnvPorts, s)
}

// relays is how many ranks pass on what others have put.
func relays(size int) int { return max(size-2, 0) / fanOut }
