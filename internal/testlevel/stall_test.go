package testlevel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s testlevel.Stall
		for i := range 10 {
			require.False(t, s.Lasts(time.Second, i/2))
			time.Sleep(time.Second / 2)
		}
		require.True(t, s.Lasts(time.Second, 4))
		require.False(t, s.Lasts(time.Second, 5))
	})
}
