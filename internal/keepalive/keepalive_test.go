package keepalive

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConfig: silence ends a connection within the limit, and an interruption of half of it, that
// began just before a probe, leaves time for another one.
func TestConfig(t *testing.T) {
	for limit := Min; limit <= time.Hour; limit = limit*3/2 + 17*time.Millisecond {
		c := config(limit)
		end := c.Idle + time.Duration(c.Count)*c.Interval
		require.LessOrEqual(t, end, limit, "%+v", c)
		require.GreaterOrEqual(t, end, limit/2+2*c.Interval, "%+v", c)
		require.Zero(t, c.Idle%time.Second, "the kernel counts in seconds")
	}
}

func TestOnlyTCP(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	require.Error(t, Idle(a, time.Minute))
	require.Error(t, All(b, time.Minute))
}

func TestSet(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, All(conn, Min))
	conn.Close()
	require.Error(t, Idle(conn, Min))
}
