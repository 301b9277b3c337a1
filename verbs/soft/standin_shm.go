//go:build linux

package soft

func newSHMWire(wireEnv) (wire, error) { return nil, unsupportedWire(WireSHM) }
