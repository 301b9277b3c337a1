package main

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar shows how far compare is, on a terminal.
type bar struct {
	*progressbar.ProgressBar // nil: no terminal
	rounds                   int
}

// newBar is for rows of which each takes about so many rounds of four contestants.
func newBar(w io.Writer, rows, rounds int) bar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return bar{}
	}
	return bar{progressbar.NewOptions(4*rows*rounds, progressbar.OptionSetWriter(w), progressbar.OptionClearOnFinish()), rounds}
}

// row i begins.
func (b bar) row(i int, name string) {
	if b.ProgressBar != nil {
		b.Describe(name)
		_ = b.Set(4 * i * b.rounds)
	}
}

// step is a sample that was taken.
func (b bar) step() {
	if b.ProgressBar != nil && b.State().CurrentNum+1 < b.GetMax64() {
		_ = b.Add(1)
	}
}

// clear leaves the line to what is printed.
func (b bar) clear() {
	if b.ProgressBar != nil {
		_ = b.Clear()
	}
}

func (b bar) end() {
	if b.ProgressBar != nil {
		_ = b.Finish()
	}
}
