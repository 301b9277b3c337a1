package main

import "github.com/tagmatch/tagmatch/internal/benchkit"

func main() {
	benchkit.Command{
		Name:  "pingpong",
		About: "half round trip and bandwidth between two ranks, by message size",
		Sizes: benchkit.Sizes{0, 8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
		Run:   benchkit.PingPong,
	}.Main()
}
