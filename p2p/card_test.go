package p2p

import (
	"bytes"
	"fmt"
	"strings"
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

// put is what ranks with these cards put.
func put(list ...card) (cs cards) {
	for i := range list {
		cs = append(cs, list[i].encode())
	}
	return cs
}

// at is a card that says where its rank is.
func at(host, boot string) card {
	return card{version: cardVersion, host: []byte(host), boot: []byte(boot)}
}

func TestAgree(t *testing.T) {
	good := newCard(filled(Config{}), []byte("secret"))
	good.host = []byte("here")
	require.NoError(t, put(good, good).agree())

	other := newCard(filled(Config{Device: "tcp", EagerLimit: 512, TLS: "secret"}), []byte("another"))
	other.host = []byte("elsewhere")
	err := put(good, good, other).agree()
	require.ErrorIs(t, err, ErrInvalid)
	require.EqualError(t, err, "p2p: invalid argument: rank 2 on elsewhere has Device (TAGMATCH_DEVICE) tcp where rank 0 has auto, "+
		"EagerLimit (TAGMATCH_EAGER_LIMIT) 512 where rank 0 has 32768, TLS (TAGMATCH_TLS) secret where rank 0 has off, another job secret than rank 0: give all ranks the same")

	newer := cards{good.encode(), {cardVersion + 1, 0xff}}
	require.EqualError(t, newer.agree(), "p2p: invalid argument: rank 1 has version 3 of the cards that ranks exchange, rank 0 version 2: run the same build of the program on all ranks")
	newer[0], newer[1] = newer[1], newer[0]
	require.EqualError(t, newer.agree(), "p2p: invalid argument: rank 1 on here has version 2 of the cards that ranks exchange, rank 0 version 3: run the same build of the program on all ranks")

	broken := other
	broken.failure = []byte("no memory")
	require.EqualError(t, put(good, good, broken).agree(), "rank 2 on elsewhere cannot take part: no memory")

	many := make(cards, 30)
	many[0] = good.encode()
	for r := range many[1:] {
		many[1+r] = other.encode()
	}
	require.ErrorContains(t, many.agree(), "and 21 more ranks")

	for name, nonsense := range map[string][]byte{"empty": nil, "cut short": good.encode()[:20], "long": append(good.encode(), 1)} {
		err := cards{good.encode(), nonsense}.agree()
		require.ErrorIs(t, err, ErrProtocol, name)
		require.ErrorContains(t, err, "rank 1's card: ", name)
		require.ErrorContains(t, err, sameBuild, name)
	}
	strange := good
	strange.terms = []byte{1}
	require.ErrorContains(t, put(good, strange).agree(), "rank 1 on here has settings in its card that differ from rank 0's, and cannot be read: "+sameBuild)
}

func TestLocals(t *testing.T) {
	list := []card{at("a", ""), at("b", ""), at("a", ""), at("b", ""), at("b", "")}
	for _, unknown := range []bootstrap.Info{{LocalRank: -1, LocalSize: -1}, {LocalRank: -1, LocalSize: 3}, {}} {
		rank, size := put(list...).locals(unknown, 3)
		require.Equal(t, [2]int{1, 3}, [2]int{rank, size})
	}
	for i := range list[:3] { // hosts of the same name
		list[i] = at("b", "another kernel")
	}
	list[3], list[4] = at("b", "kernel"), at("b", "kernel")
	rank, size := put(list...).locals(bootstrap.Info{LocalRank: -1, LocalSize: -1}, 4)
	require.Equal(t, [2]int{1, 2}, [2]int{rank, size})
	rank, size = put(list...).locals(bootstrap.Info{LocalRank: 3, LocalSize: 5}, 3)
	require.Equal(t, [2]int{3, 5}, [2]int{rank, size})
}

// Each rank's host is named by its lowest rank: by the kernel's boot, or else by the host's name.
func TestHosts(t *testing.T) {
	list := cards{}
	for _, c := range []card{at("a", "x"), at("b", "y"), at("b", "x"), at("b", ""), at("a", ""), at("c", "y"), at("b", "")} {
		list = append(list, c.encode())
	}
	require.Equal(t, []int32{0, 1, 0, 3, 4, 1, 3}, list.hosts())
	w := World{hosts: list.hosts()}
	require.Equal(t, []int{ProcNull, 0, 3, ProcNull}, []int{w.HostOf(-1), w.HostOf(2), w.HostOf(6), w.HostOf(7)})
}

// TestCardIsShort: whatever a host is like, a card is short beside its address.
func TestCardIsShort(t *testing.T) {
	c := newCard(filled(Config{Device: "shm,tcp", Transport: "tmsrq", TLS: "secret"}), []byte("secret"))
	c.host, c.cpus = head(strings.Repeat("h", 300), maxHost), make(cpuSet, maxCPUSet)
	require.LessOrEqual(t, len(c.encode()), 150)
	c.noSHM = head(strings.Repeat("é", 300), maxNoSHM)
	require.LessOrEqual(t, len(c.encode()), 250)
	require.Equal(t, strings.Repeat("é", maxNoSHM/2), string(c.noSHM))
}

func FuzzCard(f *testing.F) {
	c := newCard(filled(Config{}), nil)
	c.address = []byte("address")
	f.Add(c.encode())
	f.Add([]byte{cardVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		good := newCard(filled(Config{}), nil)
		cs := cards{good.encode(), b}
		if cs.agree() != nil {
			return
		}
		cs.locals(bootstrap.Info{}, 1)
		ranks, cpus := cs.sharers(1)
		require.True(t, ranks >= 1 && ranks <= 2 && cpus >= 1 && cpus <= maxCPU, "%d ranks on %d processors", ranks, cpus)
		c := cs.of(1)
		again, err := decodeCard(c.encode())
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

// BenchmarkCards is what Init does with the cards of all ranks, on one host, except to connect.
func BenchmarkCards(b *testing.B) {
	for _, n := range []int{64, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCard(filled(Config{}), nil)
			c.address = bytes.Repeat([]byte{1}, 200)
			cs := make(cards, n)
			for r := range cs {
				cs[r] = c.encode()
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := cs.agree(); err != nil {
					b.Fatal(err)
				}
				cs.locals(bootstrap.Info{}, 1)
				cs.sharers(1)
			}
		})
	}
}
