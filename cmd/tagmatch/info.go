package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

const infoHelp = `Info shows what a rank started from here would work with: launcher and job,
devices with their wires and capabilities, and each setting in effect with its
origin (a variable, a default, ...). It joins no job and changes nothing.

With -json each line of output is one object:
{"section":...,"name":...,"value":...,"origin":...}

Exit code: 0; 1 if a setting is wrong, after showing the rest.`

// row is one fact. All output of info consists of rows, so that text and JSON cannot differ.
type row struct {
	Section string `json:"section"`
	Name    string `json:"name"`
	Value   string `json:"value"`
	Origin  string `json:"origin,omitempty"`
}

// source returns the rows of a section, and possibly an error too.
type source func(getenv func(string) string) ([]row, error)

// sources lists the sections in the order of output.
func sources() []source {
	return []source{buildRows, hostRows, launcherRows, variableRows, deviceRows, configRows}
}

func newInfo() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "info",
		Short: "Show launcher, devices, capabilities and the configuration in effect",
		Long:  infoHelp,
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := collect(os.Getenv)
			print := printText
			if asJSON {
				print = printJSON
			}
			if werr := print(c.OutOrStdout(), rows); werr != nil {
				return &exitError{exitFailed, werr}
			}
			if err != nil {
				return &exitError{exitFailed, err}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line (-json will do too)")
	return c
}

func collect(getenv func(string) string) ([]row, error) {
	var all []row
	var errs []error
	for _, s := range sources() {
		rows, err := s(getenv)
		all = append(all, rows...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func printJSON(w io.Writer, rows []row) error {
	enc := json.NewEncoder(w)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// printText fits into columns, unless a word does not: what a name leaves no place for stands
// below.
func printText(w io.Writer, rows []row) error {
	var b strings.Builder
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r row) bool { return r.Section != rows[0].Section })
		if n < 0 {
			n = len(rows)
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		writeSection(&b, rows[:n])
		rows = rows[n:]
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSection(b *strings.Builder, rows []row) {
	names := 0
	for _, r := range rows {
		names = max(names, utf8.RuneCountInString(r.Name))
	}
	fmt.Fprintln(b, rows[0].Section)
	room := columns - names - 4
	for _, r := range rows {
		lines := wrapped(r.Value, room)
		if r.Origin != "" {
			origin, last := "("+r.Origin+")", len(lines)-1
			if beside := lines[last] + "  " + origin; utf8.RuneCountInString(beside) <= room {
				lines[last] = beside
			} else {
				lines = append(lines, wrapped(origin, room)...)
			}
		}
		name := r.Name
		for _, line := range lines {
			fmt.Fprintf(b, "  %-*s  %s\n", names, name, line)
			name = ""
		}
	}
}

// wrapped cuts a text into at least one line, of at most room columns where its words allow.
func wrapped(text string, room int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > room {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimLeft(line+" "+word, " ")
		}
		lines = append(lines, line)
	}
	return lines
}
