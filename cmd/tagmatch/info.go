package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

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
		Args:  cobra.NoArgs,
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

func printText(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	section := ""
	for _, r := range rows {
		if r.Section != section {
			if section != "" {
				fmt.Fprintln(t)
			}
			section = r.Section
			fmt.Fprintln(t, section)
		}
		origin := r.Origin
		if origin != "" {
			origin = "(" + origin + ")"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", r.Name, r.Value, origin)
	}
	return t.Flush()
}
