package benchkit

import (
	"errors"
	"os"

	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/p2p"
)

// What the library says of its settings.

func devices() []string    { return settings.Devices() }
func transports() []string { return settings.Transports() }

// inEffect fills in what the environment and the defaults give beside the flags; its error says
// what is wrong with any of them.
func inEffect(c p2p.Config) (settings.Config, error) {
	given := settings.Config{Device: c.Device, Transport: c.Transport, Progress: settings.Progress(c.Progress), SendLimit: c.SendLimit,
		MaxTags: c.MaxTags, OffloadMin: c.OffloadMin, Async: settings.Async(c.Async)}
	all, _, faults := given.Resolve(os.Getenv)
	return all, errors.Join(faults...)
}
