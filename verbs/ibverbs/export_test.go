package ibverbs

import "github.com/tagmatch/tagmatch/verbs"

// Open opens a port as TAGMATCH_RDMA_PORT names it.
func Open(name string, cfg verbs.DriverConfig) (verbs.Device, error) {
	p, err := choose(name)
	if err != nil {
		return nil, err
	}
	return newDevice(p, cfg)
}
