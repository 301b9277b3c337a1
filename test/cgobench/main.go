// Command cgobench measures calls into C on the stand-in for libibverbs: in C, by cgo, by package
// ccall, and by package verbs. It is a module of its own, because it has cgo code. The script run
// beside it builds and starts it.
package main

import (
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// timed is how long so many turns of a loop take.
type timed func(turns int) time.Duration

// row is an operation: in C, and by cgo, by package ccall, and by the interface that programs use.
type row struct {
	name               string
	c, cgo, call, verb timed // nil: is not measured
	again              bool  // queues give the same completions again and again
	best               [4]float64
}

// turns is how many of a loop are timed together: a multiple of 32.
const turns = 3200

// measure has each loop run, and keeps its best time. It runs once before, so that its memory is in
// the caches.
func (r *row) measure() {
	again(r.again)
	for i, f := range []timed{r.c, r.cgo, r.call, r.verb} {
		if f != nil {
			f(turns)
			r.best[i] = min(r.best[i], float64(f(turns))/turns)
		}
	}
}

func main() {
	rounds := flag.Int("rounds", 300, "the best of so many rounds counts; in each all loops run by turns")
	flag.Parse()
	rows := newObjects().rows()
	d := openDevice("tmstub0")
	plain := newWriter(d, 0)
	for i, verb := range []timed{2: plain.polls, 3: newWriter(d, 0).posts, 4: newWriter(d, 0).filled().polls,
		5: newWriter(d, verbs.WCExWithTMInfo).filled().polls, 6: newMessages().run} {
		rows[i].verb = verb
	}
	for i := range rows {
		rows[i].best = [4]float64{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}
	}
	for range *rounds {
		for i := range rows {
			rows[i].measure()
		}
	}
	show(rows)
}

func show(rows []row) {
	ns := func(v float64) string {
		if math.IsInf(v, 1) {
			return ""
		}
		return fmt.Sprintf("%.1f", v)
	}
	fmt.Printf("%-28s %8s %8s %8s %8s\n", "ns", "C", "cgo", "ccall", "verb")
	for _, r := range rows {
		fmt.Printf("%-28s %8s %8s %8s %8s\n", r.name, ns(r.best[0]), ns(r.best[1]), ns(r.best[2]), ns(r.best[3]))
	}
	const c, cgo, call, verb = 0, 1, 2, 3
	crossing := rows[0].best[call]
	fmt.Printf("\n%-44s %8s %8s\n", "ratio", "is", "at most")
	ratio := func(name string, is, most float64) { fmt.Printf("%-44s %8.2f %8.2f\n", name, is, most) }
	for _, i := range []int{0, 2, 3, 4} {
		ratio(rows[i].name+" over cgo", rows[i].best[call]/rows[i].best[cgo], 1)
	}
	ratio(rows[1].name+" over one", rows[1].best[call]/crossing, 1.3)
	ratio(rows[5].name+" over C", rows[5].best[verb]/rows[5].best[c], 3.5)
	ratio(rows[6].name+", beyond C, in crossings", (rows[6].best[verb]-rows[6].best[c])/crossing, 3)
}
