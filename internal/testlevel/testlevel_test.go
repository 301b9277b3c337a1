package testlevel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestLevels(t *testing.T) {
	skipped := func() bool {
		done := make(chan bool)
		go func() { // as a test, which ends where it is skipped
			b := &testing.B{}
			defer func() { done <- b.Skipped() }()
			testlevel.SkipIfQuick(b)
		}()
		return <-done
	}
	t.Setenv("TAGMATCH_TEST_LEVEL", "ci")
	require.True(t, testlevel.CI())
	require.False(t, skipped())
	t.Setenv("TAGMATCH_TEST_LEVEL", "")
	require.False(t, testlevel.CI())
	require.Equal(t, testlevel.Quick(), skipped())
	t.Setenv("TAGMATCH_TEST_LEVEL", "CI")
	require.Panics(t, func() { testlevel.CI() }, "a level that nobody knows")
}
