package verbs

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Driver opens devices that the software device is not. A package registers one when it is
// initialised, and a program imports that package for its effect, as with the drivers of
// database/sql. Any goroutine may call its methods.
type Driver interface {
	// Name is the driver's, for people; no other driver has it.
	Name() string
	// Devices returns the names of this host's devices, best first: those that Open takes, without
	// commas. One may stand for the best device of any host, since all ranks of a job are given the
	// same name. The error says why there is none. It may be called often.
	Devices() ([]string, error)
	// Open opens a device. Its Name is name.
	Open(name string, cfg DriverConfig) (Device, error)
}

// EagerLimiter is a Driver for whose devices p2p.Config.EagerLimit has another default.
type EagerLimiter interface {
	// EagerLimit is that default in bytes, on all hosts the same for a device of that name.
	EagerLimit(device string) int
}

// PortLister is a Driver whose device is one of several ports that a host may have.
type PortLister interface {
	// Ports returns this host's ports, also those that are down. The error says why there is none.
	Ports() ([]Port, error)
}

// Port is a port, for people.
type Port struct {
	Name, State string
	Chosen      bool // it is the one that Driver.Open opens
}

// DriverConfig is what the opener of a device gives to the Driver.
type DriverConfig struct {
	Rank   int          // of this process, for error messages
	Logger *slog.Logger // nil: silent
	// Lines opens a device between hosts for this job, with its secret and TLS, whose Address, Tell
	// and PollTold can be those of a device that has none of its own. carried, at most 64 bytes, is
	// what peers need to know of that device. Who calls it closes it.
	Lines func(carried []byte) (LineDevice, error)
}

// LineDevice is a device whose lines another one has for its own.
type LineDevice interface {
	Device
	Identifier
	// Carried is what the device with that address was opened with, see DriverConfig.Lines. EINVAL:
	// addr is no address.
	Carried(addr []byte) ([]byte, error)
}

var (
	driversMu sync.Mutex
	drivers   []Driver // by name; guarded by driversMu
)

// Register makes a driver known to all of the process. It is called once for each, when packages
// are initialised, and panics where the name is taken.
func Register(d Driver) {
	driversMu.Lock()
	defer driversMu.Unlock()
	i, taken := slices.BinarySearchFunc(drivers, d.Name(), func(d Driver, name string) int {
		return strings.Compare(d.Name(), name)
	})
	if taken {
		panic("verbs: there are two drivers " + d.Name())
	}
	drivers = slices.Insert(drivers, i, d)
}

// Drivers returns those that are registered, ordered by name. The slice is the caller's.
func Drivers() []Driver {
	driversMu.Lock()
	defer driversMu.Unlock()
	return slices.Clone(drivers)
}
