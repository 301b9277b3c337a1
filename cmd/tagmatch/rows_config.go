package main

import (
	"errors"
	"os"
	"strings"

	"github.com/tagmatch/tagmatch/internal/settings"
)

// configRows shows what p2p.Init would work with.
func configRows(getenv func(string) string) ([]row, error) {
	const section = "configuration"
	_, list, faults := settings.Config{}.Resolve(getenv)
	rows := []row{
		{section, "devices to choose from", strings.Join(settings.Devices(), ", "), ""},
		{section, "transports to choose from", strings.Join(settings.Transports(), ", "), ""},
		{section, "longest message", "any that the memory of its sender and its receiver holds", ""},
	}
	for _, s := range list {
		origin := s.Origin
		if origin == "default" {
			origin += "; " + s.Env
		}
		rows = append(rows, row{section, s.Field, s.Value, origin})
	}
	if unknown := settings.Unknown(os.Environ()); len(unknown) > 0 {
		rows = append(rows, row{section, "unknown variables", errors.Join(unknown...).Error(), ""})
		faults = append(faults, unknown...)
	}
	return rows, errors.Join(faults...)
}
