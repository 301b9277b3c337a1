package judge

import (
	"slices"
	"time"
)

const (
	// agree is by how much the probes before and after a sample may differ.
	agree = 1.10
	// phaseWidth is by how much the hops of samples that are compared may differ.
	phaseWidth = 1.15
	// fewest samples of each contestant that a verdict takes.
	fewest = 3
)

// Sample is a measurement between two probes.
type Sample struct {
	Value    float64 `json:"value"`
	CPUPerGB float64 `json:"cpu_s_per_gb,omitempty"`
	Before   float64 `json:"hop_before_ns"`
	After    float64 `json:"hop_after_ns"`
}

func newSample(value, cpu float64, before, after time.Duration) Sample {
	return Sample{value, cpu, float64(before), float64(after)}
}

// quiet reports whether the machine was the same before and after.
func (s Sample) quiet() bool {
	return max(s.Before, s.After) <= agree*min(s.Before, s.After)
}

func (s Sample) hop() float64 { return (s.Before + s.After) / 2 }

// phase is a range of hops.
type phase struct{ low, high float64 }

func (p phase) has(s Sample) bool { return s.quiet() && s.hop() >= p.low && s.hop() <= p.high }

// of returns the samples in the phase.
func (p phase) of(samples []Sample) []Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !p.has(s) })
}

// common is the phase that has most to compare: of all ranges of phaseWidth the one in which the
// contestant with the fewest quiet samples has most, n; of equal ones the fastest.
func common(contestants [][]Sample) (best phase, n int) {
	var starts []float64
	for _, samples := range contestants {
		for _, s := range samples {
			if s.quiet() {
				starts = append(starts, s.hop())
			}
		}
	}
	slices.Sort(starts)
	for _, low := range starts {
		p := phase{low, low * phaseWidth}
		count := len(p.of(contestants[0]))
		for _, samples := range contestants[1:] {
			count = min(count, len(p.of(samples)))
		}
		if count > n {
			best, n = p, count
		}
	}
	return best, n
}
