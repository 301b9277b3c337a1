package meters

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestFamilies: each number of p2p.Metrics has one name, and each name a number.
func TestFamilies(t *testing.T) {
	text, err := json.Marshal(p2p.Metrics{})
	require.NoError(t, err)
	values, err := Parse(text)
	require.NoError(t, err)
	delete(values, "Unexpected") // the sum of UnexpectedBySize
	names, fields := map[string]bool{}, []string{}
	for _, f := range Families {
		require.False(t, names[f.Name], f.Name)
		names[f.Name] = true
		require.Equal(t, f.Kind == Counter, strings.HasSuffix(f.Name, "_total"), f.Name)
		require.Equal(t, f.Label != "", len(f.Samples) > 1, f.Name)
		require.Regexp(t, `^[A-Z][^"\\]*\.$`, f.Help)
		for _, s := range f.Samples {
			fields = append(fields, s.Field)
		}
	}
	want := append(slices.Collect(maps.Keys(values)), Up, Started)
	require.ElementsMatch(t, want, fields)
}

func TestWrite(t *testing.T) {
	values, err := Parse([]byte(`{"Device":"shm","EagerSent":3,"RndvSent":4,"Waited":2500000000,"UnexpectedBySize":[0,7],"Offload":{"KeptFull":12345678901}}`))
	require.NoError(t, err)
	values[Up] = 1
	var b strings.Builder
	require.NoError(t, Write(&b, []Rank{{"ab", `a"b\c`, 0, values}, {"ab", "", 1, Values{Up: 0}}}))
	require.Equal(t, `# HELP tagmatch_up Whether the rank has answered.
# TYPE tagmatch_up gauge
tagmatch_up{job="ab",rank="0",program="a\"b\\c"} 1
tagmatch_up{job="ab",rank="1",program=""} 0
# HELP tagmatch_sent_messages_total Messages that were sent.
# TYPE tagmatch_sent_messages_total counter
tagmatch_sent_messages_total{job="ab",rank="0",program="a\"b\\c",protocol="eager"} 3
tagmatch_sent_messages_total{job="ab",rank="0",program="a\"b\\c",protocol="rendezvous"} 4
# HELP tagmatch_waited_seconds_total Time that goroutines have waited for messages, all of them added up.
# TYPE tagmatch_waited_seconds_total counter
tagmatch_waited_seconds_total{job="ab",rank="0",program="a\"b\\c"} 2.5
# HELP tagmatch_unexpected_messages_total Messages that arrived before their receive was posted, by size: up to so many bytes, and more than the size before.
# TYPE tagmatch_unexpected_messages_total counter
tagmatch_unexpected_messages_total{job="ab",rank="0",program="a\"b\\c",size="64"} 0
tagmatch_unexpected_messages_total{job="ab",rank="0",program="a\"b\\c",size="1024"} 7
# HELP tagmatch_kept_receives_total Receives that are kept in software, where a device matches, by reason.
# TYPE tagmatch_kept_receives_total counter
tagmatch_kept_receives_total{job="ab",rank="0",program="a\"b\\c",reason="full"} 1.2345678901e+10
`, b.String())
	_, err = Parse([]byte(`[]`))
	require.Error(t, err)
}
