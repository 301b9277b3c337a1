package main

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap"
)

func buildRows(func(string) string) ([]row, error) {
	const section = "build"
	s := readStamp()
	return []row{
		{section, "version", s.version, ""},
		{section, "commit", s.commit, ""},
		{section, "go", platform(), ""},
		{section, "cgo", s.cgo, ""},
	}, nil
}

func hostRows(getenv func(string) string) ([]row, error) {
	const section = "host"
	origin := "from the CPUs allowed"
	if getenv("GOMAXPROCS") != "" {
		origin = "GOMAXPROCS"
	}
	return []row{
		{section, "CPUs allowed", strconv.Itoa(runtime.NumCPU()), ""},
		{section, "GOMAXPROCS", strconv.Itoa(runtime.GOMAXPROCS(0)), origin},
	}, nil
}

// launcherRows describes the job that this process would join.
func launcherRows(getenv func(string) string) ([]row, error) {
	const section = "launcher"
	f, err := bootstrap.Inspect(bootstrap.Options{Getenv: getenv})
	present := row{section, "in the environment", strings.Join(f.Present, ", "), "the first is taken, unless " + bootstrap.EnvBootstrap + " names another"}
	if err != nil {
		return []row{{section, "launcher", "none: " + err.Error(), ""}, present}, err
	}
	origin := "environment"
	switch {
	case getenv(bootstrap.EnvBootstrap) != "":
		origin = bootstrap.EnvBootstrap
	case f.Launcher == "singleton":
		origin = "no launcher found"
	}
	rows := []row{
		{section, "launcher", f.Launcher, origin},
		{section, "known launchers", strings.Join(bootstrap.Launchers(), ", "), "in this order"},
		{section, "rank", rank(f), ""},
	}
	if f.LocalRank >= 0 {
		rows = append(rows, row{section, "local rank", local(f), ""})
	}
	if f.Rendezvous != "" {
		rows = append(rows, row{section, "rendezvous", f.Rendezvous, f.RendezvousOrigin})
	}
	if len(f.Present) > 1 {
		rows = append(rows, present)
	}
	return append(rows, row{section, "job secret", "32 bytes, not shown", f.SecretOrigin}), nil
}

func rank(f bootstrap.Found) string {
	if f.Rank < 0 || f.Size < 0 {
		return "the launcher tells when the job is joined"
	}
	return fmt.Sprintf("%d of %d", f.Rank, f.Size)
}

func local(f bootstrap.Found) string {
	if f.LocalSize < 0 {
		return strconv.Itoa(f.LocalRank)
	}
	return fmt.Sprintf("%d of %d", f.LocalRank, f.LocalSize)
}

// isSecret tells a job secret that was put where it does not belong.
func isSecret(value string) bool {
	b, err := hex.DecodeString(value)
	return err == nil && len(b) == bootstrap.SecretSize
}

// variableRows shows what package bootstrap reads from the environment, but for what configRows
// shows too.
func variableRows(getenv func(string) string) ([]row, error) {
	const section = "launcher variables"
	var rows []row
	for _, v := range bootstrap.Variables() {
		if v.Name == bootstrap.EnvJoinTimeout || v.Name == bootstrap.EnvPorts {
			continue
		}
		r := row{section, v.Name, v.Default, "default: " + v.Meaning}
		switch value := getenv(v.Name); {
		case value != "" && (v.Secret || isSecret(value)):
			r.Value, r.Origin = "set, not shown", "environment"
		case value != "":
			r.Value, r.Origin = value, "environment"
		case v.Default == "":
			r.Value, r.Origin = "-", "not set: "+v.Meaning
		}
		rows = append(rows, r)
	}
	return rows, nil
}
