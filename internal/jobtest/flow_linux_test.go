package jobtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flows runs a job over each device and transport, with n messages and default settings, except for
// the UnexpectedLimit, which the messages must exceed and which is scaled with n.
func flows(t *testing.T, j job, n int) { flowsEach(t, j, n, n) }

// flowsMillions is flows with fewer messages for tmsrq, which differs in the matching only.
func flowsMillions(t *testing.T, j job, n int) { flowsEach(t, j, n, n/4) }

func flowsEach(t *testing.T, j job, rc, tmsrq int) {
	if fewer() > 1 {
		j.env = append([]string{fmt.Sprintf("%s=%d", limitVar, 64<<20/fewer())}, j.env...)
	}
	overWires(t, "rc", j, rc)
	overWires(t, "tmsrq", j, tmsrq)
}

// flowsWith is flows for jobs with another limit.
func flowsWith(t *testing.T, limit string, j job, n int) {
	t.Run("limit "+limit, func(t *testing.T) {
		j.env = append([]string{limitVar + "=" + limit}, j.env...)
		overWires(t, "rc", j, n)
		overWires(t, "tmsrq", j, n)
	})
}

func overWires(t *testing.T, transport string, j job, n int) {
	t.Run(transport, func(t *testing.T) {
		eachDevice(t, func(t *testing.T, device string) {
			j := j
			j.device, j.arg, j.env = device, max(n/fewer(), 1), append([]string{"TAGMATCH_TRANSPORT=" + transport}, j.env...)
			j.succeed(t)
		})
	})
}

// TestChunks sends 512 MiB at once to posted receives.
func TestChunks(t *testing.T) { flows(t, job{n: 2, role: "chunks"}, 2048) }

// TestSlowly sends 400 MiB at once to a rank that receives one message after the other.
func TestSlowly(t *testing.T) { flows(t, job{n: 2, role: "slowly"}, 400) }

// TestReversed receives half a million small messages from the last to the first.
func TestReversed(t *testing.T) { flowsMillions(t, job{n: 2, role: "reversed"}, 500_000) }

// TestEmptyFlood floods a computing rank with messages without payload, whose only memory is the
// record.
func TestEmptyFlood(t *testing.T) { flowsMillions(t, job{n: 3, role: "emptyflood"}, 1_000_000) }

// TestBesideSlow sends to a fast rank while 20,000 large messages wait for a slow one.
func TestBesideSlow(t *testing.T) { flows(t, job{n: 3, role: "beside"}, 20_000) }

// TestStopAmongData waits for one rank while another floods this one.
func TestStopAmongData(t *testing.T) { flows(t, job{n: 3, role: "stop"}, 200_000) }

// TestAhead first receives a message that is behind more than the limit allows: of eager messages,
// and of requests.
func TestAhead(t *testing.T) {
	flows(t, job{n: 2, role: "ahead", env: []string{sizeVar + "=1024"}}, 100_000)
	flowsWith(t, "16384", job{n: 2, role: "ahead", env: []string{sizeVar + "=40960"}}, 4_000)
}

// TestCancelHeldUp cancels sends that are held up, and receives for which WANTs were sent.
func TestCancelHeldUp(t *testing.T) {
	for role, ranks := range map[string]int{"cancelheld": 2, "cancelall": 3, "cancelwants": 3} {
		t.Run(role, func(t *testing.T) {
			for _, limit := range []string{"4096", "262144"} {
				flowsWith(t, limit, job{n: ranks, role: role}, 8_000)
			}
		})
	}
}

// TestSmallLimits runs other roles with almost no memory for unexpected messages.
func TestSmallLimits(t *testing.T) {
	for _, limit := range []string{"1", "4096"} {
		for _, j := range []job{{n: 5, role: "alltoall", arg: 40}, {n: 3, role: "stream", arg: 400}, {n: 3, role: "schedule", seed: 1, arg: 40}} {
			t.Run(j.role, func(t *testing.T) { flowsWith(t, limit, j, j.arg) })
		}
	}
}

// TestKilledHeldUp kills a rank that is held up and holds up another one.
func TestKilledHeldUp(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		t.Run(transport, func(t *testing.T) {
			eachDevice(t, func(t *testing.T, device string) {
				r := job{n: 3, role: "killedheld", device: device, arg: 8000 / fewer(), grace: time.Minute, env: []string{
					"TAGMATCH_TRANSPORT=" + transport, limitVar + "=65536", "TAGMATCH_SEND_LIMIT=65536"}}.run(t)
				require.Equal(t, 128+9, r.code, "%s%s", r.out, r.err)
				for _, rank := range []int{0, 2} {
					require.Contains(t, r.out, fmt.Sprintf("[%d] survived", rank), "%s%s", r.out, r.err)
				}
			})
		})
	}
}

// TestRoom has several goroutines wait for room at their SendLimit.
func TestRoom(t *testing.T) {
	flowsWith(t, "65536", job{n: 3, role: "room", env: []string{"TAGMATCH_SEND_LIMIT=65536"}}, 8_000)
}
