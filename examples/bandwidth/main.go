package main

import "github.com/tagmatch/tagmatch/internal/benchkit"

func main() {
	benchkit.Command{
		Name:   "bandwidth",
		About:  "bandwidth from one rank to another, by message size",
		Sizes:  benchkit.Sizes{8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
		Window: 64,
		Run:    benchkit.Bandwidth,
	}.Main()
}
