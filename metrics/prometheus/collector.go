package prometheus

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tagmatch/tagmatch/internal/inspect/meters"
	"github.com/tagmatch/tagmatch/p2p"
)

// Collector has the counters of one World.
type Collector struct {
	world *p2p.World
	descs []*prometheus.Desc // of meters.Families
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector makes a Collector, which a program registers once. It keeps w; after the end of w it
// goes on with the last values. Any goroutine may call it at any time, and so its methods: a call
// holds up messages for some 20 us at a time.
func NewCollector(w *p2p.World) *Collector {
	c := &Collector{world: w}
	constant := prometheus.Labels{meters.Labels[0]: w.Metrics().Job, meters.Labels[1]: strconv.Itoa(w.Rank()), meters.Labels[2]: program()}
	for _, f := range meters.Families {
		var variable []string
		if f.Label != "" {
			variable = []string{f.Label}
		}
		c.descs = append(c.descs, prometheus.NewDesc(f.Name, f.Help, variable, constant))
	}
	return c
}

// program is its executable, without directories.
func program() string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return filepath.Base(path)
}

// Describe sends all that Collect may have.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect sends the counters as they are now. Whether the rank answers and when it began is left
// to collectors of the process.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	values, err := read(c.world)
	for i, f := range meters.Families {
		if err != nil {
			to <- prometheus.NewInvalidMetric(c.descs[i], err)
			continue
		}
		kind := prometheus.GaugeValue
		if f.Kind == meters.Counter {
			kind = prometheus.CounterValue
		}
		for _, s := range f.Samples {
			v, ok := values[s.Field]
			switch {
			case !ok: // meters.Up and meters.Started
			case f.Label == "":
				to <- prometheus.MustNewConstMetric(c.descs[i], kind, v)
			default:
				to <- prometheus.MustNewConstMetric(c.descs[i], kind, v, s.Value)
			}
		}
	}
}

func read(w *p2p.World) (meters.Values, error) {
	text, err := json.Marshal(w.Metrics())
	if err != nil {
		return nil, err
	}
	return meters.Parse(text)
}
