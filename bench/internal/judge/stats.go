package judge

import (
	"math/rand/v2"
	"slices"
)

// quantile of sorted values, between two of them by distance; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func values(samples []Sample) []float64 {
	var v []float64
	for _, s := range samples {
		v = append(v, s.Value)
	}
	slices.Sort(v)
	return v
}

func median(v []float64) float64 { return quantile(slices.Sorted(slices.Values(v)), 0.5) }

// resamples of a bootstrap.
const resamples = 2000

// interval is the range in which 90 percent of the ratios of medians lie when both sides' values
// are drawn anew, with replacement. The draws are the same each time.
func interval(ours, theirs []float64) (low, high float64) {
	if len(ours) == 0 || len(theirs) == 0 {
		return 0, 0
	}
	draw := rand.New(rand.NewPCG(1, 2))
	again := func(v []float64) float64 {
		drawn := make([]float64, len(v))
		for i := range drawn {
			drawn[i] = v[draw.IntN(len(v))]
		}
		return median(drawn)
	}
	ratios := make([]float64, resamples)
	for i := range ratios {
		ratios[i] = again(ours) / again(theirs)
	}
	slices.Sort(ratios)
	return quantile(ratios, 0.05), quantile(ratios, 0.95)
}
