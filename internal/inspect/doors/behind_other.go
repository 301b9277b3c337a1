//go:build !linux

package doors

// Halted is a rank whose process cannot answer.
type Halted struct {
	Name
	Why string
}

// Behind finds none: there are no doors on this system.
func Behind(Name) []Halted { return nil }
