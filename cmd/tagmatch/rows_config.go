package main

import (
	"errors"
	"os"
	"strings"

	"github.com/tagmatch/tagmatch/p2p"
)

// configRows shows what p2p.Init would work with.
func configRows(getenv func(string) string) ([]row, error) {
	const section = "configuration"
	var c p2p.Config
	settings, err := c.Effective(getenv)
	rows := []row{
		{section, "devices to choose from", strings.Join(p2p.Devices(), ", "), ""},
		{section, "transports to choose from", strings.Join(p2p.Transports(), ", "), ""},
		{section, "longest message", "any that the memory of its sender and its receiver holds", ""},
	}
	for _, s := range settings {
		origin := s.Origin
		if origin == "default" {
			origin += "; " + s.Env
		}
		rows = append(rows, row{section, s.Field, s.Value, origin})
	}
	if unknown := p2p.CheckEnvironment(os.Environ()); unknown != nil {
		rows = append(rows, row{section, "unknown variables", unknown.Error(), ""})
		err = errors.Join(err, unknown)
	}
	return rows, err
}
