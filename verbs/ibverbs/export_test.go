package ibverbs

import (
	"errors"

	"github.com/tagmatch/tagmatch/verbs"
)

// Open opens a port as TAGMATCH_RDMA_PORT names it.
func Open(name string, cfg verbs.DriverConfig) (verbs.Device, error) {
	p, err := choose(name)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(p, cfg)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return d, nil
}
