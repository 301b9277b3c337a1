package stacks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

func describe(calls []inspect.Call, outside []inspect.Place) string {
	var list []string
	for _, c := range calls {
		list = append(list, fmt.Sprintf("%s at %s, %s, %d", c.Name, c.At, c.State, c.Age))
	}
	for _, p := range outside {
		list = append(list, fmt.Sprintf("%s, %s", p.At, p.State))
	}
	return strings.Join(list, "; ")
}

// TestAlike: goroutines that are alike are counted, with the age of the oldest; where there are
// very many kinds some are left out.
func TestAlike(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString(stack(fmt.Sprintf("select, %d minutes", i%3), module+"p2p.Request.Wait r.go:1", "main.f main.go:3") + "\n")
	}
	for i := range 2 * most {
		b.WriteString(stack("sleep", fmt.Sprintf("main.f main.go:%d", i)) + "\n")
		b.WriteString(stack("select", module+"p2p.Request.Wait r.go:1", fmt.Sprintf("main.f main.go:%d", 1000+i)) + "\n")
	}
	calls, outside, whole := Parse([]byte(b.String()))
	require.False(t, whole)
	require.Len(t, calls, most)
	require.Len(t, outside, most)
	require.Contains(t, calls, inspect.Call{Name: "Request.Wait", Place: inspect.Place{At: "main.go:3 main.f", N: 1000, State: "select"}, Age: 120_000})
}

// TestOrder: who runs comes first.
func TestOrder(t *testing.T) {
	text := stack("chan receive", "main.a main.go:1") + "\n" + stack("sleep", "main.b main.go:2") + "\n" + stack("runnable", "main.c main.go:3")
	_, outside, _ := Parse([]byte(text))
	require.Equal(t, "main.go:3 main.c, runnable; main.go:2 main.b, sleep; main.go:1 main.a, chan receive", describe(nil, outside))
}

//go:noinline
func standStill(release <-chan struct{}) { <-release }

// TestTake reads the stacks of this process.
func TestTake(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for range 100 {
		go standStill(release)
	}
	require.Eventually(t, func() bool {
		_, outside, _ := Parse(Take())
		for _, p := range outside {
			if p.N == 100 && p.State == "chan receive" && strings.HasSuffix(p.At, " stacks.standStill") && strings.HasPrefix(p.At, "more_test.go:") {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
	for range mostGoroutines {
		go standStill(release)
	}
	require.Nil(t, Take(), "it would take long")
}

// FuzzParse: whatever the text is, what comes out is bounded and complete.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(f, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(stack("select, 999999999999 minutes", "a/b.c x:1", "(((", "]")))
	f.Fuzz(func(t *testing.T, text []byte) {
		calls, outside, _ := Parse(text)
		require.LessOrEqual(t, len(calls), most)
		require.LessOrEqual(t, len(outside), most)
		n := 0
		for _, c := range calls {
			require.NotEmpty(t, c.Name)
			require.GreaterOrEqual(t, c.Age, inspect.Age(0))
			n += c.N
		}
		for _, p := range outside {
			require.Positive(t, p.N)
			n += p.N
		}
		require.LessOrEqual(t, n, 2*strings.Count(string(text), "goroutine "))
	})
}

func BenchmarkTake(b *testing.B) {
	release := make(chan struct{})
	defer close(release)
	for range 100 {
		go standStill(release)
	}
	for b.Loop() {
		Take()
	}
}
