package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

func TestAllReduce(t *testing.T) {
	sizes, bytes := "4,1000,3m", 3<<20
	if !testlevel.CI() {
		sizes, bytes = "4,1000,300k", 300<<10
	}
	for _, n := range []int{1, 2, 4} {
		for _, device := range []string{"shm", "tcp"} {
			t.Run(fmt.Sprintf("%s/%d", device, n), func(t *testing.T) {
				t.Setenv("TAGMATCH_DEVICE", device)
				kind, element := "float64", 8
				if device == "tcp" {
					kind, element = "float32", 4
				}
				ring := fmt.Sprintf("-ring=%v", (n == 2) == (device == "tcp"))
				stdout, stderr, err := cmdtest.Run(t, "-n", fmt.Sprint(n), "-iters", "2", "-sizes", sizes, "-type", kind, ring)
				require.NoError(t, err, stderr)
				lines := strings.Split(strings.TrimSpace(stdout), "\n")
				require.Len(t, lines, 5, stdout)
				require.Equal(t, fmt.Sprintf("%d ranks, %s", n, kind), lines[0])
				for i, size := range []int{4, 1000, bytes} {
					fields := strings.Fields(lines[2+i])
					require.Equal(t, fmt.Sprint(size/element), fields[1], stdout)
					require.Equal(t, "0", fields[5], "wrong elements: %s", stdout)
				}
			})
		}
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"-iters 0: at least 1":          {"-iters", "0"},
		"-n 0: from 1 to 4096 ranks":    {"-n", "0"},
		"-type int: float32 or float64": {"-type", "int"},
		`unexpected argument "x"`:       {"x"},
	} {
		stdout, stderr, err := cmdtest.Run(t, args...)
		require.Error(t, err)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
}

// TestModel compares sums of random vectors, of any length, with the same sums by one goroutine.
func TestModel(t *testing.T) {
	ranks := []int{2, 3, 5}
	if !testlevel.CI() {
		ranks = ranks[1:2]
	}
	for _, n := range ranks {
		lengths := []int{0, 1, n - 1, n, n + 1, 1000, 3*n*chunkBytes/4 + 5}
		vectors := make([][][]float32, len(lengths))
		sums := make([][]float32, len(lengths))
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for i, length := range lengths {
			sums[i] = make([]float32, length)
			for range n {
				v := make([]float32, length)
				for k := range v {
					v[k] = float32(rng.IntN(1000)) // exact, in any order
					sums[i][k] += v[k]
				}
				vectors[i] = append(vectors[i], v)
			}
		}
		for _, transport := range []string{"rc", "tmsrq"} {
			p2ptest.RunConfig(t, n, p2p.Config{Transport: transport}, func(w *p2p.World) {
				for i := range lengths {
					v := slices.Clone(vectors[i][w.Rank()])
					require.NoError(t, AllReduce(context.Background(), w.Comm(), v))
					require.Equal(t, sums[i], v, "%d elements on %d ranks", lengths[i], n)
				}
			})
		}
	}
}
