package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJudge: the program calls PollingEnded until it is heard, then something happens, again and
// again. A row lists how many calls were not heard before each that was.
func TestJudge(t *testing.T) {
	do := map[rune]func(*judge){
		'w': (*judge).wakes, 'm': (*judge).moves, 'p': (*judge).polled, 'l': (*judge).late, 's': (*judge).sleeps,
	}
	for name, row := range map[string]struct {
		events []string // between a call that is heard and the next; the last one repeats
		want   []int
	}{
		"the goroutine is not woken":            {[]string{"p"}, []int{0, 0, 0, 0, 0, 0, 0}},
		"a wake-up moves nothing":               {[]string{"wp"}, []int{0, 0, 0, 0, 1, 3, 7, 7}},
		"one pass moves something":              {[]string{"wmp"}, []int{0, 0, 0, 0, 1, 3, 7, 7}},
		"the pass of the call does, no other":   {[]string{"mwp"}, []int{0, 0, 0, 0, 1, 3, 7, 7}},
		"the program polls before its turn":     {[]string{"pl"}, []int{0, 0, 0, 0, 1, 3, 7, 7}},
		"two passes move something":             {[]string{"wmmp"}, []int{0, 0, 0, 0, 0, 0, 0}},
		"one of them before the turn":           {[]string{"mwmp"}, []int{0, 0, 0, 0, 0, 0, 0}},
		"two, and the program polls before":     {[]string{"mmpl"}, []int{0, 0, 0, 0, 0, 0, 0}},
		"a wake-up is judged once":              {[]string{"wpplll"}, []int{0, 0, 0, 0, 1, 3, 7, 7}},
		"passes count for one call only":        {[]string{"mp", "mwp"}, []int{0, 0, 0, 0, 0, 1, 3, 7, 7}},
		"the program sleeps":                    {[]string{"wsp"}, []int{0, 0, 0, 0, 0, 0, 0}},
		"a large message after some in vain":    {[]string{"wp", "wp", "wp", "wp", "wp", "wmmp", "wp"}, []int{0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 1}},
		"neither sleep nor silence ends a row":  {[]string{"wp", "wp", "wp", "s", "p", "wp"}, []int{0, 0, 0, 0, 0, 0, 1, 3, 7, 7}},
		"the last call's wake-up is not judged": {[]string{"wp", "wp", "wp", "", "wp"}, []int{0, 0, 0, 0, 0, 1, 3, 7, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			var j judge
			var got []int
			for i := range row.want {
				unheard := 0
				for !j.hears() {
					unheard++
					require.Less(t, unheard, 100)
				}
				got = append(got, unheard)
				for _, e := range row.events[min(i, len(row.events)-1)] {
					do[e](&j)
				}
			}
			require.Equal(t, row.want, got)
		})
	}
}
