package space

import (
	"context"
	"slices"
	"sync"
)

// Place is a launcher that has started this process, as the environment shows it.
type Place struct {
	Launcher  string   // its name for people
	Identity  Identity // what the environment tells; -1: not known
	Variables []string // that are of this process alone: one that it starts must not use them
	Open      func(ctx context.Context) (Space, error)
}

// Driver is a client of a launcher that programs choose by importing its package.
type Driver struct {
	Name string // as in bootstrap.Launchers
	// Find returns nil where its launcher has not started this process.
	Find func(getenv func(string) string) (*Place, error)
}

// The drivers that the program has imported: the one thing in this process that is global, as
// imports are.
var (
	mu      sync.Mutex
	drivers []Driver
)

// Register adds a driver; the init function of its package does so.
func Register(d Driver) {
	mu.Lock()
	defer mu.Unlock()
	drivers = append(drivers, d)
}

// Drivers lists those that were registered.
func Drivers() []Driver {
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(drivers)
}
