package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// stamp is what the Go command has written into this binary.
type stamp struct {
	version, commit, cgo string
}

func readStamp() stamp {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return stamp{"unknown", "not recorded", "0"}
	}
	return stampOf(info)
}

func stampOf(info *debug.BuildInfo) stamp {
	settings := map[string]string{"CGO_ENABLED": "0"}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	switch {
	case commit == "":
		commit = "not recorded" // a build with -buildvcs=false, by go run, or outside of a clone
	case settings["vcs.modified"] == "true":
		commit += " with changes"
	}
	return stamp{info.Main.Version, commit, settings["CGO_ENABLED"]}
}

func (s stamp) String() string {
	return fmt.Sprintf("%s, commit %s, %s", s.version, s.commit, platform())
}

func platform() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of tagmatch, its commit and its Go",
		Args:  noArguments,
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), "tagmatch", readStamp()) },
	}
}
