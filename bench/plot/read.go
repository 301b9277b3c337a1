package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// line is a line of JSON that bench prints; each test has some of the fields.
type line struct {
	Test   string  `json:"test"`
	Device string  `json:"device"`
	Size   int     `json:"size"`
	Depth  int     `json:"depth"`
	Kind   string  `json:"kind"`
	MidUs  float64 `json:"mid_us"`
	P50Us  float64 `json:"p50_us"`
	MBs    float64 `json:"mb_s"`

	// compare
	What       string   `json:"what"` // limits too
	Cold       bool     `json:"cold"`
	Sliding    bool     `json:"sliding"` // bw too
	Ours       figure   `json:"ours"`
	References []figure `json:"references"`
}

type figure struct {
	Name     string  `json:"name"`
	Median   float64 `json:"median"`
	Accepted int     `json:"accepted"`
}

// chart is a picture: series of points.
type chart struct {
	name, title, x, y string
	linear            bool // y begins at 0; else both axes are logarithmic
	sizes             bool // x is in bytes
	series            map[string]map[float64]float64
	limits            map[string]float64 // values that hold for the smallest x
}

// charts by name.
type charts map[string]*chart

func (c charts) sorted() []*chart {
	var list []*chart
	for _, name := range slices.Sorted(maps.Keys(c)) {
		// A limit alone is no picture.
		if len(c[name].series) > 0 {
			list = append(list, c[name])
		}
	}
	return list
}

// tagmatch is the name of our series, rawLimit the beginning of the names of limits.
const (
	tagmatch = "tagmatch"
	rawLimit = "raw limit"
)

// read adds what a file has. Later lines of the same thing replace earlier ones.
func (c charts) read(in io.Reader) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 16<<20)
	for n := 1; scanner.Scan(); n++ {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d is not what bench prints with -json: %w", n, err)
		}
		c.add(&l)
	}
	return scanner.Err()
}

func (c charts) add(l *line) {
	us := l.MidUs
	if us == 0 {
		us = l.P50Us
	}
	switch l.Test {
	case "compare":
		c.compare(l)
	case "limits":
		c.limit(l)
	case "lat":
		c.latency(l.Device).point(tagmatch, l.Size, us)
	case "bw":
		c.bandwidth(l.Device, false, l.Sliding).point(tagmatch, l.Size, l.MBs/1e3)
	case "depth":
		c.depth(l.Kind).point(tagmatch, l.Depth, us)
	}
}

// compare adds the contestants of a row. Rows without a device compare ours with ours.
func (c charts) compare(l *line) {
	if l.Device == "" || l.Ours.Accepted == 0 {
		return
	}
	to, x, scale := (*chart)(nil), l.Size, 1.0
	switch l.What {
	case "lat":
		to = c.latency(l.Device)
	case "bw":
		to, scale = c.bandwidth(l.Device, l.Cold, l.Sliding), 1e-3
	case "depth":
		to, x = c.depth(l.Kind), l.Depth
	default:
		return
	}
	to.point(tagmatch, x, l.Ours.Median*scale)
	for _, f := range l.References {
		switch {
		case f.Accepted == 0:
		case f.Name == "depth 16":
			to.point(tagmatch, 16, f.Median)
		default:
			to.point(f.Name, x, f.Median*scale)
		}
	}
}

// limit adds what the machine can do at best to the charts that it limits.
func (c charts) limit(l *line) {
	switch l.What {
	case "line":
		c.latency("shm").limits[rawLimit+": a line of shared memory, 8 B"] = l.MidUs
	case "socket":
		c.latency("tcp").limits[rawLimit+": spinning on a socket, 8 B"] = l.MidUs
	case "cma":
		c.bandwidth("shm", false, false).point(rawLimit+": one side copies", l.Size, l.MBs/1e3)
	case "cma2":
		c.bandwidth("shm", false, false).point(rawLimit+": both sides copy", l.Size, l.MBs/1e3)
	}
}

// point adds one, unless there is none to add.
func (c *chart) point(series string, x int, y float64) {
	if x <= 0 || y <= 0 {
		return // an axis is logarithmic, and 0 bytes have no bandwidth
	}
	if c.series[series] == nil {
		c.series[series] = map[float64]float64{}
	}
	c.series[series][float64(x)] = y
}

func (c charts) get(name string, fresh chart) *chart {
	if c[name] == nil {
		fresh.name, fresh.series, fresh.limits = name, map[string]map[float64]float64{}, map[string]float64{}
		c[name] = &fresh
	}
	return c[name]
}

var deviceNames = map[string]string{"shm": "shared memory", "tcp": "TCP over loopback"}

func (c charts) latency(device string) *chart {
	return c.get("latency-"+device, chart{title: "Latency, " + deviceNames[device], x: "message size", y: "half round trip, us", sizes: true})
}

func (c charts) bandwidth(device string, cold, sliding bool) *chart {
	name, title := "bandwidth-"+device, "Bandwidth, "+deviceNames[device]+", window 64"
	if sliding {
		name, title = name+"-sliding", title+" that slides"
	}
	if cold {
		name, title = name+"-cold", title+", buffers in no cache"
	}
	return c.get(name, chart{title: title, x: "message size", y: "GB/s", linear: true, sizes: true})
}

func (c charts) depth(kind string) *chart {
	return c.get("depth-"+kind, chart{title: "Latency behind queued entries: " + kind, x: "entries", y: "half round trip of 8 B, us"})
}
