package benchkit

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/p2p"
)

// What the library says of its settings.

func devices() []string    { return p2p.Devices() }
func transports() []string { return p2p.Transports() }

// checkSettings returns what is wrong with a configuration, or with the environment.
func checkSettings(c p2p.Config) error {
	_, err := c.Effective(os.Getenv)
	return err
}

// setting is the value in effect, in bytes, of a field that the environment may have set.
func setting(c p2p.Config, field string) (int64, error) {
	settings, err := c.Effective(os.Getenv)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(settings, func(s p2p.Setting) bool { return s.Field == field })
	if settings[i].Value == "none" {
		return 0, nil
	}
	return strconv.ParseInt(strings.TrimSuffix(settings[i].Value, " bytes"), 10, 64)
}
