package hostlist

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpand(t *testing.T) {
	for _, tt := range []struct{ list, want, err string }{
		{"localhost", "localhost", ""},
		{"n[1-3]", "n1 n2 n3", ""},
		{"n[1-2,5],login", "n1 n2 n5 login", ""},
		{"n[08-11]", "n08 n09 n10 n11", ""},
		{"n[007-010]", "n007 n008 n009 n010", ""},
		{"n[9-10]", "n9 n10", ""},
		{"c[1-2]x[3-4]", "c1x3 c1x4 c2x3 c2x4", ""},
		{"d[1-2]-ib", "d1-ib d2-ib", ""},
		{"[1-2]", "1 2", ""},
		{"a-b.example.org", "a-b.example.org", ""},
		{"", "", "an empty name"},
		{"a,,b", "", "an empty name"},
		{"n[1-", "", "not closed"},
		{"n[1[2]", "", "not closed"},
		{"n1]", "", "closing bracket"},
		{"n[3-1]", "", `"3-1" is neither`},
		{"n[a-b]", "", `"a-b" is neither`},
		{"n[]", "", `"" is neither`},
		{"n[0-262144]", "", "more than 262144 names"},
		{"n[0-511]x[0-511]x[0-1]", "", "more than 262144 names"},
		{"n[0-18446744073709551615]", "", "neither a number"},
	} {
		got, err := Expand(tt.list)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err, tt.list)
			continue
		}
		require.NoError(t, err, tt.list)
		require.Equal(t, tt.want, strings.Join(got, " "))
	}
	all, err := Expand("n[0-511]x[0-511]")
	require.NoError(t, err)
	require.Len(t, all, MaxNames)
}

func TestTasks(t *testing.T) {
	for _, tt := range []struct {
		s    string
		want []int
	}{
		{"1", []int{1}}, {"2(x3),1", []int{2, 2, 2, 1}}, {"2,1", []int{2, 1}}, {"0,4(x2)", []int{0, 4, 4}},
		{"", nil}, {"2(x0)", nil}, {"2(x3", nil}, {"2)", nil}, {"-1", nil}, {"2(3)", nil}, {"1(x262145)", nil}, {"x", nil},
	} {
		got, err := Tasks(tt.s)
		require.Equal(t, tt.want == nil, err != nil, tt.s)
		require.Equal(t, tt.want, got, tt.s)
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("c[1-2]x[3-4],n[007-010]-ib")
	f.Fuzz(func(t *testing.T, s string) {
		names, err := Expand(s)
		require.True(t, err != nil || len(names) > 0 && len(names) <= MaxNames)
		for _, n := range names {
			require.NotContains(t, n, "[")
		}
	})
}

func FuzzTasks(f *testing.F) {
	f.Add("2(x3),1")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := Tasks(s)
		require.True(t, err != nil || len(list) > 0 && len(list) <= MaxTasks)
	})
}
