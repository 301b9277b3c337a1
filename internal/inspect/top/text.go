package top

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// View is how a Table is shown.
type View struct {
	Title, Foot string // the first line, and the last; "" leaves the last out
	Sort        int    // index of Columns; negative: by rank where all ranks fit, else the busiest first
	Reverse     bool   // of Sort
	Width       int    // columns of the terminal
	Height      int    // its lines; 0: all ranks are shown
}

const (
	byRank = 0 // of Columns
	byRate = 2

	above = 3 // lines above the ranks: the title, the sums and the headings
)

// Lines is what is shown of a table: no more lines than the height has, but for one rank at least,
// and none is longer than the width. Ranks that have no room are counted.
func (v *View) Lines(t *Table) []string {
	room := len(t.Rows)
	if v.Height > 0 {
		room = max(1, v.Height-above-min(1, len(v.Foot)))
	}
	sorted := v.SortedBy(len(t.Rows))
	rows := slices.Clone(t.Rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return Columns[sorted].compare(&a, &b, v.Reverse) })
	lines := []string{v.Title, t.sums(), v.headings(sorted)}
	shown := len(rows)
	if shown > room {
		shown = max(1, room-1)
	}
	for i := range rows[:shown] {
		lines = append(lines, v.line(&rows[i]))
	}
	if more := len(rows) - shown; more > 0 && room > 1 {
		lines = append(lines, fmt.Sprintf(" and %d more ranks", more))
	}
	if v.Foot != "" {
		lines = append(lines, v.Foot)
	}
	for i := range lines {
		lines[i] = fit(lines[i], v.Width)
	}
	return lines
}

// SortedBy is the column that a table of so many ranks is sorted by.
func (v *View) SortedBy(ranks int) int {
	switch {
	case v.Sort >= 0:
		return v.Sort
	case v.Height > 0 && ranks > v.Height-above-min(1, len(v.Foot)):
		return byRate
	}
	return byRank
}

// shown is how many columns there is room for.
func (v *View) shown() (n int) {
	for width := 0; n < len(Columns); n++ {
		if width += Columns[n].width; width > v.Width {
			break
		}
	}
	return max(1, n)
}

// headings has that of the column that is sorted by in capitals.
func (v *View) headings(sorted int) string {
	var b strings.Builder
	for i := range Columns[:v.shown()] {
		name := Columns[i].Name
		if i == sorted {
			name = strings.ToUpper(name)
		}
		b.WriteString(Columns[i].cell(name))
	}
	return b.String()
}

// line is a rank: where that has not answered, it says why instead of what is not known.
func (v *View) line(r *Row) string {
	var b strings.Builder
	for i := range Columns[:v.shown()] {
		if i == byRate && r.Silent != "" {
			b.WriteString("  " + r.Silent)
			break
		}
		b.WriteString(Columns[i].cell(Columns[i].text(r)))
	}
	return b.String()
}

// cell is a text in the width of the column, with a blank before it: numbers to the right.
func (c *Column) cell(text string) string {
	if c.value == nil {
		return fmt.Sprintf("  %-*s", c.width-2, fit(text, c.width-2))
	}
	return fmt.Sprintf(" %*s", c.width-1, fit(text, c.width-1))
}

// sums is what all ranks come to, and the late one.
func (t *Table) sums() string {
	var messages, bytes, waits float64
	var silent int
	for i := range t.Rows {
		if r := t.Rows[i].Rates; r != nil {
			messages, bytes = messages+r.Sent, bytes+r.SentBytes
		}
		if t.Rows[i].Silent != "" {
			silent++
		}
		if t.Rows[i].Late {
			waits = t.Rows[i].Waiting
		}
	}
	line := fmt.Sprintf("sent: %s msg/s, %s MB/s", count(messages), megabytes(bytes))
	if silent > 0 {
		line += fmt.Sprintf("; no answer: %d", silent)
	}
	if t.Late >= 0 {
		line += fmt.Sprintf("; * late: rank %d (waits %s%%)", t.Late, percent(waits))
	}
	return line
}

// fit makes one line of a text, and cuts it off where it is wider than the width.
func fit(text string, width int) string {
	r := []rune(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?")))
	if len(r) <= width {
		return strings.TrimRight(string(r), " ")
	}
	return string(r[:max(0, width)])
}
