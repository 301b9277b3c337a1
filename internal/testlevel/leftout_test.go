package testlevel_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

var leftOut = testlevel.LeftOut{"does not hold": "for this test", "group/does_not_hold_either": "for this test"}

// TestSuite is a suite of which cases fail, that are left out.
func TestSuite(t *testing.T) {
	for name := range leftOut {
		if leftOut.Has(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			require.Equal(t, time.Second, testlevel.Patience(time.Hour))
			t.Fatal("it is played")
		})
	}
	require.False(t, leftOut.Has("holds"))
	t.Run("holds", func(*testing.T) {})
}

func TestStillFails(t *testing.T) {
	t.Setenv("TAGMATCH_TEST_SLOW", "")
	require.Equal(t, time.Hour, testlevel.Patience(time.Hour))
	t.Setenv("TAGMATCH_TEST_SLOW", "1")
	require.Equal(t, 6*time.Hour, testlevel.Patience(time.Hour))
	leftOut.StillFails(t, "TestSuite")
}

// TestSkipTests: the flag -test.skip leaves out those tests, beside what it left out before, and
// nothing in a process of StillFails.
func TestSkipTests(t *testing.T) {
	skip := flag.Lookup("test.skip").Value
	given := skip.String()
	defer func() { require.NoError(t, skip.Set(given)) }()
	require.NoError(t, skip.Set("^TestOther$"))
	tests := testlevel.LeftOut{"TestA": "", "TestB/some.case": ""}
	t.Setenv("TAGMATCH_TEST_LEFT_OUT", "1")
	tests.SkipTests()
	require.Equal(t, "^TestOther$", skip.String())
	t.Setenv("TAGMATCH_TEST_LEFT_OUT", "")
	testlevel.LeftOut{}.SkipTests()
	require.Equal(t, "^TestOther$", skip.String())
	tests.SkipTests()
	require.Equal(t, `^TestA$|^TestB$/^some\.case$|^TestOther$`, skip.String())
}

// TestPassesNow: a case that is left out without need is found, and one that does not exist.
func TestPassesNow(t *testing.T) {
	for _, name := range []string{"holds", "nothing"} {
		if os.Getenv("PASSES_NOW") == name {
			testlevel.LeftOut{name: ""}.StillFails(t, "TestSuite")
			return
		}
	}
	for _, name := range []string{"holds", "nothing"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PASSES_NOW", name)
			testlevel.LeftOut{"": "PassesNow itself fails"}.StillFails(t, "TestPassesNow")
		})
	}
}
