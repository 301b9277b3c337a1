package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/settings"
)

// filled is c with the defaults.
func filled(c Config) *settings.Config {
	full, _, _ := c.settings().Resolve(func(string) string { return "" })
	return &full
}

func TestAgree(t *testing.T) {
	good := newCard(filled(Config{}), []byte("secret"))
	require.NoError(t, agree([]card{good, good}))

	other := newCard(filled(Config{Device: "tcp", EagerLimit: 512, TLS: "secret"}), []byte("another"))
	other.Host = "elsewhere"
	err := agree([]card{good, good, other})
	require.ErrorIs(t, err, ErrInvalid)
	require.EqualError(t, err, "p2p: invalid argument: rank 2 on elsewhere has Device (TAGMATCH_DEVICE) tcp where rank 0 has auto, "+
		"EagerLimit (TAGMATCH_EAGER_LIMIT) 512 where rank 0 has 32768, TLS (TAGMATCH_TLS) secret where rank 0 has off, another job secret than rank 0: give all ranks the same")

	older := good
	older.Version = 0
	require.ErrorContains(t, agree([]card{good, older}), " has version 0 of the cards that ranks exchange, rank 0 version 1: run the same build of the program on all ranks")

	broken := other
	broken.Failure = "no memory"
	require.EqualError(t, agree([]card{good, good, broken}), "rank 2 on elsewhere cannot take part: no memory")

	many := make([]card, 30)
	many[0] = good
	require.ErrorContains(t, agree(many), "and 21 more ranks")
}

func TestLocals(t *testing.T) {
	cards := []card{{Host: "a"}, {Host: "b"}, {Host: "a"}, {Host: "b"}, {Host: "b"}}
	for _, unknown := range []bootstrap.Info{{LocalRank: -1, LocalSize: -1}, {LocalRank: -1, LocalSize: 3}, {}} {
		rank, size := locals(unknown, 3, cards)
		require.Equal(t, [2]int{1, 3}, [2]int{rank, size})
	}
	for i := range cards[:3] { // hosts of the same name
		cards[i].Host, cards[i].Boot = "b", "another kernel"
	}
	cards[3].Boot, cards[4].Boot = "kernel", "kernel"
	rank, size := locals(bootstrap.Info{LocalRank: -1, LocalSize: -1}, 4, cards)
	require.Equal(t, [2]int{1, 2}, [2]int{rank, size})
	rank, size = locals(bootstrap.Info{LocalRank: 3, LocalSize: 5}, 3, cards)
	require.Equal(t, [2]int{3, 5}, [2]int{rank, size})
}
