package benchtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// WrongFlags gives the command, whose name is name, what it must refuse: at once, in one line that says what is wrong.
func WrongFlags(t *testing.T, name string) {
	for args, want := range map[string]string{
		"-device foo":      `-device is "foo": this build has auto, shm, tcp`,
		"-transport foo":   `-transport is "foo": this build has auto, rc, tmsrq`,
		"-sizes huge":      `invalid value "huge" for flag -sizes: "huge" is not a size: give 0 to 1073741824 bytes, for example 8,1k,4m`,
		"-iters -3":        "-iters is -3: give 1 or more, or 0 for as many as the size calls for",
		"-gomaxprocs -1":   "-gomaxprocs is -1: give 1 to 1024, or 0 to leave it",
		"-max-tags 100000": "-max-tags is 100000: give 0 to 65536, or -1 for the default",
		"extra":            `unexpected argument "extra"`,
		"-no-such-flag":    "flag provided but not defined: -no-such-flag",
	} {
		stdout, stderr, err := Run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, "exit status 2", args)
		require.Empty(t, stdout, args)
		require.Equal(t, name+": "+want+" (-h lists the flags)\n", stderr, args)
	}
	_, stderr, err := Run(t, "-h")
	require.NoError(t, err)
	require.Contains(t, stderr, "-device name")
}
