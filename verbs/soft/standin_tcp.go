//go:build linux

package soft

func newTCPWire(wireEnv) (wire, error) { return nil, unsupportedWire(WireTCP) }
