//go:build !linux

package keepalive

import "time"

func setRetries(int, time.Duration) {}

func setUserTimeout(int, time.Duration) error { return nil }
