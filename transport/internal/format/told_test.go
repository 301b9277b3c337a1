package format

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

func testHello() *Hello {
	return &Hello{Rank: 3, Number: 1 << 60, Pairs: []Pair{{1, 2}, {most24, most24}}, MTU: verbs.MTU4096, Target: 16, Initiator: 15, CellAddr: 1 << 50,
		CellRKey: 7, Greeting: make([]byte, transport.MaxGreeting)}
}

// TestTold: what is told is decoded as it was, and is short enough to be told.
func TestTold(t *testing.T) {
	short := testHello()
	short.Pairs, short.Greeting = short.Pairs[:1], []byte{}
	for _, m := range []interface{ Encode() []byte }{testHello(), short, &Ready{Number: 5}, &End{Accuses: true, Reason: "it lies"}, &End{}} {
		b := m.Encode()
		require.LessOrEqual(t, len(b), verbs.MaxTell)
		got, err := DecodeTold(b)
		require.NoError(t, err)
		require.Equal(t, m, got)
		for n := range b {
			if got, err := DecodeTold(b[:n]); err == nil {
				require.IsType(t, &End{}, got, "cut to %d bytes", n)
			}
		}
		if _, ok := m.(*End); !ok {
			_, err = DecodeTold(append(b, 0))
			require.Error(t, err)
		}
	}
}

// TestToldRefused: a HELLO with a field that is out of range is refused.
func TestToldRefused(t *testing.T) {
	for name, change := range map[string]func(h *Hello){
		"no queue pair":     func(h *Hello) { h.Pairs = nil },
		"three queue pairs": func(h *Hello) { h.Pairs = append(h.Pairs, Pair{}) },
		"a long number":     func(h *Hello) { h.Pairs[0].Num++; h.Pairs[1].Num++ },
		"a long sequence":   func(h *Hello) { h.Pairs[1].PSN++ },
		"MTU 0":             func(h *Hello) { h.MTU = 0 },
		"MTU 6":             func(h *Hello) { h.MTU = 6 },
		"rank":              func(h *Hello) { h.Rank = MaxRanks },
		"greeting":          func(h *Hello) { h.Greeting = append(h.Greeting, 0) },
	} {
		h := testHello()
		change(h)
		_, err := DecodeTold(h.Encode())
		require.Error(t, err, name)
		_, ok := errors.AsType[*OtherVersion](err)
		require.False(t, ok, name)
	}
	for _, b := range [][]byte{{}, {1}, {1, 9, 0, 0}, {1, kindEnd, 2, 0}, {1, kindEnd, 0, 1}} {
		_, err := DecodeTold(b)
		require.Error(t, err)
	}
}

// TestToldVersion: HELLO and READY of another version are known as such; END is understood.
func TestToldVersion(t *testing.T) {
	for _, m := range []interface{ Encode() []byte }{testHello(), &Ready{}} {
		b := m.Encode()
		b[0] = 77
		_, err := DecodeTold(b)
		version, ok := errors.AsType[*OtherVersion](err)
		require.True(t, ok)
		require.Equal(t, 77, version.Theirs)
	}
	b := (&End{Reason: "other"}).Encode()
	b[0] = 77
	got, err := DecodeTold(b)
	require.NoError(t, err)
	require.Equal(t, &End{Reason: "other"}, got)
}

// TestReason: a reason that is too long is cut between two characters.
func TestReason(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 500), strings.Repeat("é", 150), "a" + strings.Repeat("é", 150)} {
		b := (&End{Reason: long}).Encode()
		got, err := DecodeTold(b)
		require.NoError(t, err)
		reason := got.(*End).Reason
		require.True(t, utf8.ValidString(reason))
		require.NotContains(t, reason, "?")
		require.Greater(t, len(reason), MaxReason-5)
		require.True(t, strings.HasPrefix(long, strings.TrimSuffix(reason, reasonCut)))
	}
}

func FuzzDecodeTold(f *testing.F) {
	f.Add(testHello().Encode())
	f.Add((&Ready{Number: 9}).Encode())
	f.Add((&End{Accuses: true, Reason: "reason"}).Encode())
	f.Add([]byte{1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeTold(b)
		if err != nil {
			require.True(t, got == nil, "no typed one either")
			return
		}
		if e, ok := got.(*End); ok {
			require.True(t, utf8.ValidString(e.Reason))
			return
		}
		require.Equal(t, b, got.(interface{ Encode() []byte }).Encode(), "one encoding for each message")
	})
}
