package tracing

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/trace"
)

// fake is a door of rank 1 of a job. Job says what each of its ranks answers there, by way of
// others; own what rank 1 says itself.
type fake struct {
	name doors.Name
	door *doors.Door
	job  func(q trace.Request) map[int]any
	own  func(q trace.Request) any
}

func (f *fake) open(t *testing.T) *fake {
	f.name = doors.Name{UID: os.Geteuid(), Job: fmt.Sprintf("%08x", time.Now().UnixNano()&math.MaxUint32), Rank: 1, PID: os.Getpid()}
	var err error
	f.door, err = doors.Open(f.name, func(request string) []any {
		rest, all := strings.CutPrefix(request, inspect.RequestJob+" ")
		q, ok := trace.ParseRequest(rest)
		switch {
		case !ok || !all && f.own == nil:
			return doors.Refuse(request)
		case !all:
			return []any{f.own(q)}
		}
		lines := []any{}
		for rank, say := range f.job(q) {
			p := inspect.Part{Rank: rank}
			if why, ok := say.(string); ok {
				p.Why = why
			} else {
				b, err := json.Marshal(say)
				if err != nil {
					panic(err)
				}
				p.Lines = append(p.Lines, b)
			}
			lines = append(lines, p)
		}
		return lines
	})
	require.NoError(t, err)
	t.Cleanup(f.door.Close)
	return f
}

func (f *fake) answer(rank, records int, part ...trace.Record) trace.Answer {
	a := trace.Answer{Version: trace.Version, Job: f.name.Job, Rank: rank, Size: 3, Records: records}
	for i := range part {
		a.Part = part[i].Append(a.Part)
	}
	return a
}

// TestNoneCanBeAsked: the ranks of this host end before those of others are read, which then cannot
// be asked.
func TestNoneCanBeAsked(t *testing.T) {
	f := &fake{}
	f.job = func(trace.Request) map[int]any {
		return map[int]any{0: f.answer(0, 0), 1: f.answer(1, 0), 2: f.answer(2, 0)}
	}
	f.open(t)
	tr, err := Begin(t.Context(), []doors.Name{f.name}, time.Minute, 10)
	require.NoError(t, err)
	f.door.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*rest)
	defer cancel()
	list, err := tr.End(ctx)
	require.Empty(t, list)
	require.ErrorContains(t, err, "ranks 0, 2: ")
	require.ErrorContains(t, err, "rank 1: ")
}

// TestUnknownRank: a rank of which nothing is said does not record, so none does.
func TestUnknownRank(t *testing.T) {
	f := &fake{}
	stopped := false
	f.job = func(q trace.Request) map[int]any {
		stopped = stopped || q.Stop
		return map[int]any{0: f.answer(0, 0), 1: f.answer(1, 0)}
	}
	f.open(t)
	_, err := Begin(t.Context(), []doors.Name{f.name}, time.Minute, 10)
	require.EqualError(t, err, "rank 2: it could not be asked")
	require.True(t, stopped)
}

// TestWithoutRank0: a rank that is not heard by way of rank 0 is asked itself.
func TestWithoutRank0(t *testing.T) {
	f := &fake{}
	lost, vain := false, 0
	f.job = func(trace.Request) map[int]any {
		if lost {
			vain++
			return map[int]any{0: doors.Gone, 1: "rank 0 does not answer", 2: doors.Gone}
		}
		return map[int]any{0: f.answer(0, 1), 1: f.answer(1, 1), 2: doors.Left}
	}
	f.own = func(q trace.Request) any {
		if q.Read {
			return f.answer(1, 1, trace.Record{Kind: trace.Sent, Tag: 5})
		}
		return f.answer(1, 1)
	}
	f.open(t)
	tr, err := Begin(t.Context(), []doors.Name{f.name}, time.Minute, 10)
	require.NoError(t, err)
	lost = true
	list, err := tr.End(t.Context())
	require.EqualError(t, err, "rank 0: "+doors.Gone)
	require.Len(t, list, 1)
	require.Equal(t, []trace.Record{{Kind: trace.Sent, Tag: 5}}, list[0].Events)
	require.Equal(t, 1, vain, "the others are not asked in vain for each part")
}

// TestHostile: ranks may be those of a user who is not trusted.
func TestHostile(t *testing.T) {
	many := make([]trace.Record, trace.MostInPart)
	for i := range many {
		many[i].Kind = trace.Awake
	}
	for name, row := range map[string]struct {
		say  func(f *fake, q trace.Request) (rank int, a trace.Answer)
		says string
	}{
		"no end": {func(f *fake, _ trace.Request) (int, trace.Answer) {
			return 2, f.answer(2, 2*trace.MostInPart-1, many...)
		},
			"rank 2: of 1999 records it hands out 2000"},
		"too few": {func(f *fake, _ trace.Request) (int, trace.Answer) { return 2, f.answer(2, 5, many[:4]...) },
			"rank 2: of 5 records it hands out 4"},
		"too many": {func(f *fake, q trace.Request) (int, trace.Answer) { return 2, f.answer(2, trace.Most+1, many...) },
			"rank 2: it says that it is rank 2 of 3, and has 4194305 records"},
		"rank": {func(f *fake, q trace.Request) (int, trace.Answer) {
			a := f.answer(math.MaxInt, 0)
			a.Size = math.MaxInt
			return math.MaxInt, a
		}, "it says that it is rank 9223372036854775807 of 9223372036854775807, and has 0 records"},
		"below": {func(f *fake, q trace.Request) (int, trace.Answer) { return -1, f.answer(-1, 0) }, "it says that it is rank -1 of 3, and has 0 records"},
		"size": {func(f *fake, q trace.Request) (int, trace.Answer) {
			a := f.answer(2, 0)
			a.Size = math.MaxInt
			return 2, a
		}, "rank 2: it says that it is rank 2 of 9223372036854775807"},
		"other": {func(f *fake, q trace.Request) (int, trace.Answer) { return 2, f.answer(1, 0) }, "rank 2: its answer is of rank 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			f.job = func(q trace.Request) map[int]any {
				rank, a := row.say(f, q)
				return map[int]any{0: f.answer(0, 0), 1: f.answer(1, 0), rank: a}
			}
			f.open(t)
			tr, err := Begin(t.Context(), []doors.Name{f.name}, time.Minute, 10)
			if err == nil {
				var list []int
				ranks, end := tr.End(t.Context())
				for _, r := range ranks {
					list = append(list, r.Rank)
				}
				require.Equal(t, []int{0, 1}, list)
				err = end
			}
			require.ErrorContains(t, err, row.says)
		})
	}
}
