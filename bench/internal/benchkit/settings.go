package benchkit

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/p2p"
)

// What the library says of its settings.

func devices() []string    { return settings.Devices() }
func transports() []string { return settings.Transports() }

// checkSettings returns what is wrong with a configuration, or with the environment.
func checkSettings(c p2p.Config) error {
	_, err := inEffect(c)
	return err
}

// inEffect lists the settings of a configuration, of which the flags give those below.
func inEffect(c p2p.Config) ([]settings.Setting, error) {
	given := settings.Config{Device: c.Device, Transport: c.Transport, Progress: settings.Progress(c.Progress), SendLimit: c.SendLimit,
		MaxTags: c.MaxTags, OffloadMin: c.OffloadMin, Async: settings.Async(c.Async)}
	_, list, faults := given.Resolve(os.Getenv)
	return list, errors.Join(faults...)
}

// setting is the value in effect, in bytes, of a field that the environment may have set.
func setting(c p2p.Config, field string) (int64, error) {
	list, err := inEffect(c)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(list, func(s settings.Setting) bool { return s.Field == field })
	if list[i].Value == "none" {
		return 0, nil
	}
	return strconv.ParseInt(strings.TrimSuffix(list[i].Value, " bytes"), 10, 64)
}
