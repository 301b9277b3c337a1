package benchkit

import (
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// Sample is a point of a memory curve: the maxima since the point before.
type Sample struct {
	Ms         int64 `json:"ms"`               // since the flood began
	RSS        int64 `json:"rss"`              // resident memory of the process
	Unexpected int64 `json:"unexpected_bytes"` // p2p.Metrics.UnexpectedBytes
}

const (
	sampleEvery = 10 * time.Millisecond
	curvePoints = 256 // maximum; a curve that reaches it keeps every second point
)

// curve samples this process's memory in a goroutine, which owns the curve until stop has returned.
type curve struct {
	start  time.Time
	quit   chan struct{}
	done   chan struct{}
	points []Sample
	last   Sample // not in points yet
	merged int    // samples in last
	stride int    // samples in each point
	err    error
}

func watch(w *p2p.World) *curve {
	c := &curve{start: time.Now(), quit: make(chan struct{}), done: make(chan struct{}), stride: 1}
	go c.run(w)
	return c
}

func (c *curve) run(w *p2p.World) {
	defer close(c.done)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for c.err == nil {
		var s Sample
		if s.RSS, _, c.err = Resident(); c.err == nil {
			s.Unexpected, s.Ms = w.Metrics().UnexpectedBytes, time.Since(c.start).Milliseconds()
			c.add(s)
		}
		select {
		case <-tick.C:
		case <-c.quit:
			return
		}
	}
}

func (c *curve) add(s Sample) {
	c.last = c.last.merge(s)
	if c.merged++; c.merged < c.stride {
		return
	}
	c.points = append(c.points, c.last)
	c.last, c.merged = Sample{}, 0
	if len(c.points) < curvePoints {
		return
	}
	for i := range curvePoints / 2 {
		c.points[i] = c.points[2*i].merge(c.points[2*i+1])
	}
	c.points, c.stride = c.points[:curvePoints/2], 2*c.stride
}

func (s Sample) merge(later Sample) Sample {
	return Sample{later.Ms, max(s.RSS, later.RSS), max(s.Unexpected, later.Unexpected)}
}

// stop ends the sampling. It may be called again.
func (c *curve) stop() {
	select {
	case <-c.quit:
	default:
		close(c.quit)
	}
	<-c.done
}

// seen returns the curve, after stop.
func (c *curve) seen() ([]Sample, error) {
	if c.merged > 0 {
		c.points, c.merged = append(c.points, c.last), 0
	}
	return c.points, c.err
}
