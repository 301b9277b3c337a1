package benchkit

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// layout is a kind of table.
type layout struct {
	of      func(r *Result) bool // results that it is for
	note    func(r *Result) string
	columns []column
	// over names the series of a result, and what of it is compared with the first of the series;
	// nil: results are not compared.
	over func(r *Result) (series string, value float64)
}

type column struct {
	name  string
	width int
	text  func(r *Result) string
}

// layouts are tried in this order.
var layouts = []*layout{&overlapTable, &floodTable, &soakTable, &depthTable, &idleTable, &vecTable, &echoTable, &manyStreamsTable, &threadsTable, &streamTable, &alltoallTable,
	&latencyOfRanksTable, &latencyTable}

// Columns of several tables.
var (
	sizeColumn      = column{"size", 10, func(r *Result) string { return sizeName(r.Size) }}
	deviceColumn    = column{"device", 8, func(r *Result) string { return r.Device }}
	transportColumn = column{"transport", 10, func(r *Result) string { return r.Transport }}
	ranksColumn     = whole("ranks", 10, func(r *Result) int { return r.Ranks })
	avgColumn       = number("avg", 10, 3, func(r *Result) float64 { return r.AvgUs })
	p50Column       = number("p50", 10, 3, func(r *Result) float64 { return r.P50Us })
	p99Column       = number("p99", 10, 3, func(r *Result) float64 { return r.P99Us })
	megabytesColumn = number("MB/s", 12, 1, func(r *Result) float64 { return r.MBs })
	rateColumn      = number("M msg/s", 12, 4, func(r *Result) float64 { return r.MsgS / 1e6 })
	overColumn      = number("over first", 10, 2, func(r *Result) float64 { return r.Over })
)

func roundsColumn(name string, width int) column {
	return whole(name, width, func(r *Result) int { return r.Iters })
}

func number(name string, width, digits int, value func(r *Result) float64) column {
	return column{name, width, func(r *Result) string { return strconv.FormatFloat(value(r), 'f', digits, 64) }}
}

func whole[N int | int64 | uint64](name string, width int, value func(r *Result) N) column {
	return column{name, width, func(r *Result) string { return fmt.Sprint(value(r)) }}
}

var latencyTable = layout{
	of: func(*Result) bool { return true },
	note: func(r *Result) string {
		return wires(r) + "; half round trip in us; MB are 10^6 bytes"
	},
	columns: []column{sizeColumn, roundsColumn("round trips", 10), avgColumn, p50Column, p99Column, megabytesColumn},
}

// Streams have no percentiles, latencies no processor time.
var streamTable = layout{
	of: func(r *Result) bool { return r.Window > 0 },
	note: func(r *Result) string {
		return fmt.Sprintf("%s, %d messages under way; MB are 10^6 bytes, cpu s/GB are processor seconds of both ranks", wires(r), r.Window)
	},
	columns: []column{sizeColumn, roundsColumn("messages", 10),
		megabytesColumn, rateColumn,
		number("cpu s/GB", 12, 3, func(r *Result) float64 { return r.CPUPerGB })},
}

var overlapTable = layout{
	of: func(r *Result) bool { return r.OverlapPct != nil },
	note: func(*Result) string {
		return "medians in us: a transfer that is waited for, a computation, and what the transfer adds to it"
	},
	columns: []column{sizeColumn, deviceColumn, transportColumn,
		{"progress", 10, func(r *Result) string { return r.Progress }},
		{"async", 5, func(r *Result) string { return asyncNames[r.Async] }},
		roundsColumn("rounds", 8),
		number("transfer", 12, 1, func(r *Result) float64 { return r.P50Us }),
		number("compute", 12, 1, func(r *Result) float64 { return r.ComputeUs }),
		number("extra", 12, 1, func(r *Result) float64 { return r.ExtraUs }),
		{"overlap", 10, func(r *Result) string { return fmt.Sprintf("%.1f %%", *r.OverlapPct) }}},
}

var echoTable = layout{
	of: func(r *Result) bool { return r.Waiter != "" },
	note: func(r *Result) string {
		return wires(r) + "; us of an HTTP request that is echoed inside a process, and p99 over that without a goroutine in Recv beside it"
	},
	columns: []column{sizeColumn, {"waiter", 10, func(r *Result) string { return r.Waiter }}, roundsColumn("requests", 10),
		avgColumn, p50Column, p99Column, overColumn},
	over: func(r *Result) (string, float64) { return fmt.Sprint(r.Size), r.P99Us },
}

// wires names what carries the messages.
func wires(r *Result) string { return fmt.Sprintf("device %s, transport %s", r.Device, r.Transport) }

// reporter writes results as a table or as JSON lines.
type reporter struct {
	out    io.Writer
	json   bool
	layout *layout            // of the results so far
	first  map[string]float64 // by series: see layout.over
}

func (p *reporter) print(r *Result) error {
	i := slices.IndexFunc(layouts, func(l *layout) bool { return l.of(r) })
	p.compare(layouts[i], r)
	if p.json {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "%s\n", line)
		return err
	}
	if p.layout != layouts[i] {
		p.layout = layouts[i]
		if _, err := fmt.Fprintf(p.out, "# %s\n", p.layout.note(r)); err != nil {
			return err
		}
		if err := p.line(func(c *column) string { return c.name }); err != nil {
			return err
		}
	}
	return p.line(func(c *column) string { return c.text(r) })
}

// compare sets r.Over.
func (p *reporter) compare(l *layout, r *Result) {
	if l.over == nil {
		return
	}
	series, value := l.over(r)
	if p.first == nil {
		p.first = map[string]float64{}
	}
	if _, ok := p.first[series]; !ok {
		p.first[series] = value
	}
	r.Over = value / p.first[series]
}

func (p *reporter) line(text func(c *column) string) error {
	cells := make([]string, len(p.layout.columns))
	for i := range cells {
		c := &p.layout.columns[i]
		cells[i] = fmt.Sprintf("%*s", c.width, text(c))
	}
	_, err := fmt.Fprintln(p.out, strings.Join(cells, " "))
	return err
}
