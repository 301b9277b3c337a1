package settings

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknown(t *testing.T) {
	for entry, want := range map[string]string{
		"PATH=/bin": "", "TAGMATCH_DEVICE=shm": "", "TAGMATCH_JOIN_TIMEOUT=5s": "", "TAGMATCH_SECRET=x": "", "TAGMATCH_PIN=0": "",
		"TAGMATCH_LAUNCH_FD=3:4": "", "TAGMATCH_RDMA_PORT=mlx5_0:1": "", "TAGMATCH_RDMA_GID=3": "", "TAGMATCH_DEVISE=": "", "TAGMATCH_TEST_ROLE=x": "", "TAGMATCHER=x": "",
		"TAGMATCH_DEVISE=shm":                 "the environment has TAGMATCH_DEVISE, which is no variable of this release: did you mean TAGMATCH_DEVICE?",
		"TAGMATCH_UNEXPECTED=1m":              "did you mean TAGMATCH_UNEXPECTED_LIMIT?",
		"TAGMATCH_JOINTIMEOUT=1m":             "did you mean TAGMATCH_JOIN_TIMEOUT?",
		"TAGMATCH_tRANSPORT=rc":               "did you mean TAGMATCH_TRANSPORT?",
		"TAGMATCH_FAVOURITE_MATHEMATICIAN=al": "unset it; `tagmatch info` lists those that there are",
		"TAGMATCH_=1":                         "the environment has TAGMATCH_, which",
	} {
		err := errors.Join(Unknown([]string{"HOME=/", entry})...)
		if want == "" {
			require.NoError(t, err, entry)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	err := errors.Join(Unknown([]string{"TAGMATCH_SECRT=5a5a", "TAGMATCH_PROGRES=auto"})...)
	require.ErrorContains(t, err, "TAGMATCH_SECRET?")
	require.ErrorContains(t, err, "TAGMATCH_PROGRESS?")
	require.NotContains(t, err.Error(), "5a5a")
}

// TestDocumentedVariablesAreKnown: what a text tells users to set must not be refused as a
// misspelled name.
func TestDocumentedVariablesAreKnown(t *testing.T) {
	texts, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	seen := 0
	for _, text := range append(texts, "../../README.md", "../../bootstrap/pmix/pmix.go", "../../bootstrap/doc.go", "../../p2p/doc.go", "../../p2p/config.go") {
		b, err := os.ReadFile(text)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`TAGMATCH_[A-Z_]*[A-Z]\b`).FindAllString(string(b), -1) {
			require.Empty(t, Unknown([]string{name + "=x"}), text)
			seen++
		}
	}
	require.Greater(t, seen, 20)
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"ab", "ba", 2}, {"flaw", "lawn", 2}} {
		require.Equal(t, c.want, distance(c.a, c.b), "%q %q", c.a, c.b)
	}
}
