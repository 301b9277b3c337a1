package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestLook: ps and dump see this process, which is a job of one rank. There may be others.
func TestLook(t *testing.T) {
	w, err := p2p.Init(context.Background(), p2p.Config{})
	require.NoError(t, err)
	defer w.Close()
	var posted []p2p.Request
	for tag := range p2p.Tag(10) {
		posted = append(posted, w.Comm().Irecv(0, 0x77+tag, make([]byte, 10)))
	}
	names, err := doors.Find()
	require.NoError(t, err)
	job := names[slices.IndexFunc(names, func(n doors.Name) bool { return n.PID == os.Getpid() })].Job

	code, out, errs := command("ps")
	require.Zero(t, code, errs)
	require.Contains(t, out, "job "+job+": ")
	code, out, errs = command("dump", job)
	require.Zero(t, code, errs)
	require.Contains(t, out, "\n\nNothing is wrong with the job that can be seen: it ")
	require.Contains(t, out, "\n  receive  from 0, tag 0x77, 10 bytes")
	require.Contains(t, out, "\n           and 2 more\n")
	code, out, errs = command("dump", job, "--full")
	require.Zero(t, code, errs)
	require.Contains(t, out, "\n  receive  from 0, tag 0x80, 10 bytes")
	require.NotContains(t, out, "more\n")
	code, out, errs = command("dump", job, "--json", "--rank", "0")
	require.Zero(t, code, errs)
	var s inspect.State
	require.True(t, strings.HasPrefix(out, `{"verdicts":[]}`+"\n"), out)
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[1]), &s))
	require.Equal(t, os.Getpid(), s.PID)
	require.Equal(t, 2, strings.Count(out, "\n"))

	code, out, errs = command("dump", job, "--rank", "1")
	require.Equal(t, 1, code, out)
	require.Equal(t, "tagmatch: --rank 1: job "+job+" has no such rank that is known of here: tagmatch ps lists them\n", errs)
	code, _, errs = command("dump", "0"+job)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "tagmatch: no job 0"+job+" runs here: name one of ")
	code, _, errs = command("dump", job, "x")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "tagmatch: tagmatch dump takes one job: leave out x\n")
	for _, r := range posted {
		r.Cancel()
		_, err = r.Wait(context.Background())
		require.ErrorIs(t, err, p2p.ErrCanceled)
	}
}

func TestOfJob(t *testing.T) {
	a, b, other := doors.Name{Job: "12ab"}, doors.Name{Job: "12cd", Rank: 1}, doors.Name{Job: "34"}
	list, err := ofJob([]doors.Name{a, a}, "")
	require.NoError(t, err)
	require.Len(t, list, 2)
	list, err = ofJob([]doors.Name{a, b}, "12c")
	require.NoError(t, err)
	require.Equal(t, []doors.Name{b}, list)
	_, err = ofJob([]doors.Name{a, b}, "")
	require.EqualError(t, err, "several jobs run here, name one of them: 12ab, 12cd")
	_, err = ofJob([]doors.Name{a, b, other}, "12")
	require.EqualError(t, err, "several jobs run here, name one of them: 12ab, 12cd")
	_, err = ofJob([]doors.Name{a, {UID: 9, Job: "12ab"}}, "12ab") // as root sees them
	require.EqualError(t, err, "users 0 and 9 both have a job 12ab: call tagmatch as the one whose job it is")
}

// TestAllSilent: of a job that has ended between two commands nothing good is said.
func TestAllSilent(t *testing.T) {
	ended := []inspect.State{{Job: "12ab", Silent: doors.Gone}, {Job: "12ab", Rank: 1, Silent: doors.Gone}}
	var b strings.Builder
	require.NoError(t, writeVerdicts(&b, nil, ended, ended))
	require.Equal(t, "No rank of the job answers, so nothing is known of it. It may have ended.\n", b.String())
}
