package diagnose

import (
	"fmt"
	"io"
	"math/bits"
	"strings"
	"unicode"

	"github.com/tagmatch/tagmatch/internal/ranks"
)

// widthLeast is the narrowest text that Write makes: what does not fit is wider.
const widthLeast = 40

// Write writes verdicts for people, in lines of at most width columns where their words allow.
// Where there are none it writes nothing.
func Write(out io.Writer, verdicts []Verdict, width int) error {
	t := &text{width: max(width, widthLeast)}
	for n, v := range verdicts {
		if n != 0 {
			t.b.WriteByte('\n')
		}
		t.verdict(&v)
	}
	_, err := io.WriteString(out, t.b.String())
	return err
}

type text struct {
	b     strings.Builder
	width int
}

func (t *text) verdict(v *Verdict) {
	head := strings.ToUpper(string(v.Class)) + ", certain"
	if !v.Certain {
		head = strings.ToUpper(string(v.Class)) + ", now"
	}
	if len(v.Ranks) != 0 {
		head += ": " + rankTexts(v)
	}
	if v.Age > 0 {
		head += ", for " + ageText(v.Age)
	}
	t.wrap("", head)
	t.wrap("  ", v.What)
	if v.Bits != nil {
		t.bits(v.Bits)
	}
	if len(v.Hosts) != 0 {
		t.wrap("  Hosts: ", hostsText(v)+".")
	}
	t.wrap("  What to do: ", v.Do)
	if len(v.Waiting) != 0 {
		t.wrap("  "+rankCount(len(v.Waiting))+" for this: ", ranks.List(v.Waiting)+".")
	}
	if v.Doubt != "" {
		t.wrap("  Not certain: ", v.Doubt+".")
	}
}

func rankCount(n int) string {
	if n == 1 {
		return "1 more rank waits"
	}
	return fmt.Sprintf("%d more ranks wait", n)
}

// rankTexts names the ranks of a verdict, the culprit first.
func rankTexts(v *Verdict) string {
	if len(v.Ranks) == 1 || !v.Culprit {
		return ranks.List(v.Ranks)
	}
	return fmt.Sprintf("rank %d, with %s", v.Ranks[0], ranks.List(v.Ranks[1:]))
}

// bits shows where two tags differ: the bits from the highest that either has, or in which they
// differ, with a mark below each that differs.
func (t *text) bits(b *Bits) {
	n := max(bits.Len64(b.Asked|b.Found), 1)
	n = (n + 3) / 4 * 4
	marks := grouped(b.Asked^b.Found, n, " ", "^")
	hex := len(fmt.Sprintf("%#x", max(b.Asked, b.Found)))
	line := func(word string, tag uint64) {
		fmt.Fprintf(&t.b, "    %-8s %*s  %s\n", word, hex, fmt.Sprintf("%#x", tag), grouped(tag, n, "0", "1"))
	}
	line("awaited", b.Asked)
	line("message", b.Found)
	fmt.Fprintln(&t.b, strings.TrimRight(strings.Repeat(" ", 4+8+1+hex+2)+marks, " "))
}

// grouped is the lowest n bits, four by four.
func grouped(bits uint64, n int, zero, one string) string {
	var b strings.Builder
	for i := n - 1; i >= 0; i-- {
		if bits>>i&1 != 0 {
			b.WriteString(one)
		} else {
			b.WriteString(zero)
		}
		if i%4 == 0 && i != 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// printable has no character that a terminal would obey: places and names come from ranks.
func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// wrap writes words, the first line behind a heading, the others indented like it.
func (t *text) wrap(head, words string) {
	indent := "    "
	if strings.TrimSpace(head) == "" {
		indent = head
	}
	if head == "" {
		indent = "  "
	}
	line, empty := head, true
	for _, w := range strings.Fields(words) {
		w = strings.Map(printable, w)
		if !empty && len(line)+1+len(w) > t.width {
			fmt.Fprintln(&t.b, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+w, false
	}
	fmt.Fprintln(&t.b, line)
}
