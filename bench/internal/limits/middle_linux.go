package limits

import (
	"fmt"
	"slices"
	"time"
)

// parts of a measurement whose averages are kept.
const parts = 100

// middle makes n rounds and returns the median of the parts' averages, in microseconds a round, and
// the time of all.
func middle(n int, rounds func(n int) error) (us float64, all time.Duration, err error) {
	var each []float64
	for i := range parts {
		k := n*(i+1)/parts - n*i/parts
		if k == 0 {
			continue
		}
		start := time.Now()
		if err = rounds(k); err != nil {
			return 0, 0, err
		}
		took := time.Since(start)
		all += took
		each = append(each, float64(took)/1e3/float64(k))
	}
	slices.Sort(each)
	return each[len(each)/2], all, nil
}

// latency fills in half round trips.
func (s *side) latency(rounds func(n int) error) (err error) {
	us, _, err := middle(s.line.Iters, rounds)
	s.line.MidUs, s.line.Text = us/2, fmt.Sprintf("%.3f us", us/2)
	return err
}

// bandwidth fills in the rate of copies.
func (s *side) bandwidth(rounds func(n int) error) (err error) {
	us, _, err := middle(s.line.Iters, rounds)
	s.line.MBs = float64(s.line.Size) / us
	s.line.Text = fmt.Sprintf("%.3f GB/s", s.line.MBs/1e3)
	return err
}
