package top

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// Column is one of the table.
type Column struct {
	Name  string // the heading, and what a user calls it
	width int
	down  bool                 // sorted so that the largest is first
	value func(r *Row) float64 // to sort by; unknown where it is not known
	text  func(r *Row) string  // "" where the value is not known
}

var unknown = math.NaN()

// Columns are all columns, in their order. As many as the width has room for are shown.
var Columns = []Column{
	{Name: "rank", width: 7, value: func(r *Row) float64 { return float64(r.Rank) }, text: func(r *Row) string { return mark(r) + fmt.Sprint(r.Rank) }},
	{Name: "pid", width: 8, value: func(r *Row) float64 { return float64(r.PID) }, text: func(r *Row) string { return fmt.Sprint(r.PID) }},
	rated("msg/s", 8, count, (*Rates).messages),
	rated("MB/s-in", 9, megabytes, func(r *Rates) float64 { return r.ReceivedBytes }),
	rated("MB/s-out", 9, megabytes, func(r *Rates) float64 { return r.SentBytes }),
	level("posted", 8, count, func(l *Levels) float64 { return float64(l.Posted) }),
	level("unexp", 7, count, func(l *Levels) float64 { return float64(l.Unexpected) }),
	level("mem%", 6, percent, func(l *Levels) float64 { return part(l.UnexpectedBytes, l.UnexpectedLimit) }),
	rated("dev%", 6, percent, (*Rates).offloaded),
	rated("wait%", 6, percent, func(r *Rates) float64 { return r.Waiting }),
	rated("cpu%", 6, percent, func(r *Rates) float64 { return r.CPU }),
	rated("recv/s", 9, count, func(r *Rates) float64 { return r.Received }),
	rated("sent/s", 9, count, func(r *Rates) float64 { return r.Sent }),
	level("unexpMB", 9, megabytes, func(l *Levels) float64 { return float64(l.UnexpectedBytes) }),
	level("limitMB", 9, megabytes, func(l *Levels) float64 { return float64(l.UnexpectedLimit) }),
	{Name: "host", width: 16, text: func(r *Row) string { return r.Host }},
}

func rated(name string, width int, text func(float64) string, value func(*Rates) float64) Column {
	return number(name, width, text, func(r *Row) float64 {
		if r.Rates == nil {
			return unknown
		}
		return value(r.Rates)
	})
}

func level(name string, width int, text func(float64) string, value func(*Levels) float64) Column {
	return number(name, width, text, func(r *Row) float64 {
		if r.Levels == nil {
			return unknown
		}
		return value(r.Levels)
	})
}

func number(name string, width int, text func(float64) string, value func(*Row) float64) Column {
	return Column{Name: name, width: width, down: true, value: value, text: func(r *Row) string {
		v := value(r)
		if math.IsNaN(v) {
			return "-"
		}
		return text(v)
	}}
}

// messages is those of both directions.
func (r *Rates) messages() float64 { return r.Sent + r.Received }

func (r *Rates) offloaded() float64 {
	if r.Received == 0 {
		return unknown
	}
	return r.Offloaded
}

// part is not known where there is no limit.
func part(some, all int64) float64 {
	if all <= 0 {
		return unknown
	}
	return float64(some) / float64(all)
}

func mark(r *Row) string {
	if r.Late {
		return "* "
	}
	return ""
}

// count is a number that is cut to thousands or millions where it has many digits.
func count(v float64) string {
	for _, unit := range []string{"", "k", "M"} {
		if v < 99_999.5 {
			return fmt.Sprintf("%.0f%s", v, unit)
		}
		v /= 1000
	}
	return fmt.Sprintf("%.0fG", v)
}

// megabytes is a number of bytes in millions, as bench has them.
func megabytes(v float64) string { return fmt.Sprintf("%.1f", v/1e6) }

func percent(v float64) string { return fmt.Sprintf("%.0f", 100*v) }

// ColumnOf finds a column by its name, or the beginning of it.
func ColumnOf(name string) (int, error) {
	var names []string
	for i := range Columns {
		if name != "" && strings.HasPrefix(strings.ToLower(Columns[i].Name), strings.ToLower(name)) {
			return i, nil
		}
		names = append(names, Columns[i].Name)
	}
	return 0, fmt.Errorf("there is no column %q to sort by: name one of %s", name, strings.Join(names, ", "))
}

// compare sorts what is not known last, whatever the direction.
func (c *Column) compare(a, b *Row, reverse bool) int {
	if c.value == nil {
		return direction(strings.Compare(c.text(a), c.text(b)), reverse)
	}
	v, w := c.value(a), c.value(b)
	switch {
	case math.IsNaN(v) && math.IsNaN(w):
		return 0
	case math.IsNaN(v):
		return 1
	case math.IsNaN(w):
		return -1
	}
	return direction(cmp.Compare(v, w), c.down != reverse)
}

func direction(order int, down bool) int {
	if down {
		return -order
	}
	return order
}
