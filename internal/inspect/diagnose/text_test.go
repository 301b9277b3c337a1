package diagnose

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

func TestWords(t *testing.T) {
	require.Equal(t, "1 byte", bytesText(1))
	require.Equal(t, "1000 bytes", bytesText(1000))
	require.Equal(t, "16 KiB", bytesText(16<<10))
	require.Equal(t, "3 MiB", bytesText(3<<20))
	require.Equal(t, "1.5 s", ageText(1500))
	require.Equal(t, "59 s", ageText(59_999))
	require.Equal(t, "3 m 20 s", ageText(200_000))
	require.Equal(t, "26 h 0 m", ageText(26*3600*1000))
	require.Equal(t, "off by one", differText(7, 8))
	require.Equal(t, "which differs in bit 4", differText(0x10, 0))
	require.Equal(t, "which differs in 2 bits", differText(0, 3<<8))
	require.Equal(t, "any tag of Comm 5", tagText(inspect.Key{Comm: "Comm 5", Any: true}))
	require.Equal(t, "tag 0x7 mask 0xf, raw", tagText(inspect.Key{Comm: inspect.CommRaw, Tag: 7, Mask: 15}))
}

// TestBits shows the bits of long tags, with marks below those that differ.
func TestBits(t *testing.T) {
	var out bytes.Buffer
	v := Verdict{Class: Mismatch, Ranks: []int{1}, What: "x", Do: "y", Bits: &Bits{Asked: 0x105, Found: 0x005}}
	require.NoError(t, Write(&out, []Verdict{v}, 80))
	require.Contains(t, out.String(), ""+
		"    awaited  0x105  0001 0000 0101\n"+
		"    message    0x5  0000 0000 0101\n"+
		"                       ^\n")
}

// TestWidths wraps words at any width, and is not stopped by a word that does not fit.
func TestWidths(t *testing.T) {
	for _, b := range broken {
		verdicts := b.build().diagnose()
		for _, width := range []int{-1, 40, 60, 80, 132} {
			var out bytes.Buffer
			require.NoError(t, Write(&out, verdicts, width))
			for line := range strings.Lines(out.String()) {
				require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), max(width, widthLeast), "%q", line)
			}
		}
	}
	long := strings.Repeat("x", 200)
	var out bytes.Buffer
	require.NoError(t, Write(&out, []Verdict{{Class: Late, What: "at " + long + " it is", Do: "z"}}, 60))
	require.Contains(t, out.String(), long+"\n")
}
