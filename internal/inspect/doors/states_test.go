package doors

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// TestDecodeMetrics is TestDecode of counters.
func TestDecodeMetrics(t *testing.T) {
	n := Name{Job: "ab", Rank: 1}
	m, err := decodeMetrics([]byte(`{"version":1,"job":"ab","rank":1,"size":2,"values":{"EagerSent":3}}`), n)
	require.NoError(t, err)
	require.JSONEq(t, `{"EagerSent":3}`, string(m.Values))
	for text, want := range map[string]string{
		`{"version":77,"job":"ab","rank":1,"size":2}`: "its answer has version 77",
		`{"version":1,"job":"ab","rank":0,"size":2}`:  "its answer is of rank 0 of 2 of job ab",
		`{"version":1,"job":7}`:                       "its answer is no metrics",
	} {
		_, err := decodeMetrics([]byte(text), n)
		require.ErrorContains(t, err, want, text)
	}
}

// TestDecode: an answer that is not a state of that rank, in this version, is refused with a
// reason.
func TestDecode(t *testing.T) {
	n := Name{Job: "ab", Rank: 1}
	good := inspect.State{Version: inspect.Version, Job: "ab", Rank: 1, Size: 2, PID: 7}
	line, err := json.Marshal(good)
	require.NoError(t, err)
	s, err := decode(line, n)
	require.NoError(t, err)
	require.Equal(t, good, s)
	for text, want := range map[string]string{
		`hello`: "its answer is no JSON",
		`{"version":77,"calls":"of another form"}`:          "its answer has version 77, and this tagmatch knows 1: use that of the same release",
		`{"version":1,"calls":"of another form"}`:           "its answer is no state",
		`{"version":1,"job":"cd","rank":1,"size":2}`:        "its answer is of rank 1 of 2 of job cd",
		`{"version":1,"job":"ab","rank":0,"size":2}`:        "its answer is of rank 0 of 2 of job ab",
		`{"version":1,"job":"ab","rank":1,"size":1}`:        "its answer is of rank 1 of 1 of job ab",
		`{"version":1,"job":"ab","rank":1,"size":2,"at":1}`: "its answer is no state",
	} {
		_, err := decode([]byte(text), n)
		require.ErrorContains(t, err, want, text)
	}
}
