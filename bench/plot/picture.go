package main

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Width and height of a picture.
const (
	width  = 7 * vg.Inch
	height = 4.5 * vg.Inch
)

// colors of the series that have one of their own; ours is the one that stands out.
var colors = map[string]color.RGBA{
	tagmatch:  {R: 0xd0, G: 0x20, B: 0x20, A: 0xff},
	"ucx":     {R: 0x1f, G: 0x77, B: 0xb4, A: 0xff},
	"openmpi": {R: 0xe0, G: 0x90, B: 0x10, A: 0xff},
	"mpich":   {R: 0x2c, G: 0x90, B: 0x2c, A: 0xff},
}

var gray = color.RGBA{R: 0x70, G: 0x70, B: 0x70, A: 0xff}

// labels are the names of series for readers.
var labels = map[string]string{"ucx": "UCX", "openmpi": "Open MPI", "mpich": "MPICH", "default": "tagmatch, default settings"}

// save draws the chart into a file, whose name says in which format.
func (c *chart) save(name string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, c.xTicks()
	if c.linear {
		p.Y.Min = 0
	} else {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Title.Padding, p.Legend.Padding = vg.Points(6), vg.Points(2)
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(8)
	p.Add(plotter.NewGrid())
	for i, series := range c.names() {
		if err := c.line(p, series, c.points(series), i); err != nil {
			return err
		}
	}
	low, high := c.span()
	for i, limit := range slices.Sorted(maps.Keys(c.limits)) {
		at := c.limits[limit]
		if err := c.line(p, limit, plotter.XYs{{X: low, Y: at}, {X: high, Y: at}}, i); err != nil {
			return err
		}
	}
	if c.linear {
		p.Y.Max *= 1.4 // room for the legend
	} else {
		p.Y.Max *= 5
	}
	p.X.Max *= 1.15 // and for the last number of the axis
	return p.Save(width, height, name)
}

// line adds one with its points; those of limits are dashed, and have none.
func (c *chart) line(p *plot.Plot, series string, xys plotter.XYs, i int) error {
	l, points, err := plotter.NewLinePoints(xys)
	if err != nil {
		return err
	}
	l.Color, l.Width = gray, vg.Points(1.2)
	if own, ok := colors[series]; ok {
		l.Color = own
	}
	if series == tagmatch {
		l.Width = vg.Points(2.2)
	}
	points.Color, points.Shape, points.Radius = l.Color, draw.CircleGlyph{}, vg.Points(2.5)
	label := series
	if name, ok := labels[series]; ok {
		label = name
	}
	if strings.HasPrefix(series, rawLimit) {
		l.Dashes = []vg.Length{vg.Points(float64(3 + 3*i)), vg.Points(3)}
		p.Add(l)
		p.Legend.Add(label, l)
		return nil
	}
	p.Add(l, points)
	p.Legend.Add(label, l, points)
	return nil
}

// names of the series: ours, others, limits.
func (c *chart) names() []string {
	order := func(name string) int {
		switch {
		case name == tagmatch:
			return 0
		case strings.HasPrefix(name, rawLimit):
			return 2
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(c.series), func(a, b string) int {
		return cmp.Or(order(a)-order(b), strings.Compare(a, b))
	})
}

// points of a series, by x.
func (c *chart) points(series string) plotter.XYs {
	var xys plotter.XYs
	for _, x := range slices.Sorted(maps.Keys(c.series[series])) {
		xys = append(xys, plotter.XY{X: x, Y: c.series[series][x]})
	}
	return xys
}

// span is the range of x.
func (c *chart) span() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, points := range c.series {
		for x := range points {
			low, high = min(low, x), max(high, x)
		}
	}
	return low, high
}

// xTicks are at powers of eight for sizes, of ten for others.
func (c *chart) xTicks() plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		step := 10.0
		if c.sizes {
			step = 8
		}
		for x := 1.0; x <= high*1.01; x *= step {
			if x >= low*0.99 {
				ticks = append(ticks, plot.Tick{Value: x, Label: c.xName(x)})
			}
		}
		return ticks
	})
}

// xName writes a number for the axis.
func (c *chart) xName(x float64) string {
	switch unit := map[bool]float64{true: 1024, false: 1000}[c.sizes]; {
	case x >= unit*unit:
		return fmt.Sprintf("%.4gM", x/unit/unit)
	case x >= unit:
		return fmt.Sprintf("%.4gk", x/unit)
	}
	return fmt.Sprintf("%.4g", x)
}
