package matching

import (
	"encoding/binary"
	"math/bits"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

var sinkHash uint64

// The contenders. xxhash has no seeded one-shot form, so its seed is hashed
// along with the key.
func xxh(seed, key uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], key)
	return xxhash.Sum64(b[:])
}

// fold1 is the hash with its second round left out.
func fold1(h *hasher, key uint64) uint64 {
	hi, lo := bits.Mul64(key^h.offset, h.first)
	return hi ^ lo
}

// BenchmarkHash feeds each hash into the next key: it is the latency that
// stands before every probe.
func BenchmarkHash(b *testing.B) {
	h := newHasher(1)
	b.Run("one round", func(b *testing.B) {
		for b.Loop() {
			sinkHash = fold1(&h, sinkHash)
		}
	})
	b.Run("two rounds", func(b *testing.B) {
		for b.Loop() {
			sinkHash = h.sum(sinkHash)
		}
	})
	b.Run("xxhash", func(b *testing.B) {
		for b.Loop() {
			sinkHash = xxh(1, sinkHash)
		}
	})
}

// families are sets of tags as programs make them, and as an enemy would who
// knows the hash and not the seed.
func families(n int) map[string][]uint64 {
	inverse := uint64(0x9e3779b97f4a7c15) // of the usual multiplier, by Newton
	for range 6 {
		inverse *= 2 - 0x9e3779b97f4a7c15*inverse
	}
	f := map[string][]uint64{}
	for i := range uint64(n) {
		f["counting"] = append(f["counting"], i)
		f["high bits"] = append(f["high bits"], i<<48)
		f["stride 2^20"] = append(f["stride 2^20"], i<<20)
		f["stride 2^32+1"] = append(f["stride 2^32+1"], i*(1<<32+1))
		f["reversed"] = append(f["reversed"], bits.Reverse64(i))
		f["context|source|tag"] = append(f["context|source|tag"], 1<<63|5<<52|(i/64)<<32|i%64)
		f["odd multiples"] = append(f["odd multiples"], i*0x9e3779b97f4a7c15)
		f["unseeded multiply"] = append(f["unseeded multiply"], i*inverse)
		f["gray code"] = append(f["gray code"], i^i>>1)
	}
	return f
}

// cost returns the mean number of keys that a lookup of a present key passes,
// at one bucket a key. Random placement has 1.5.
func cost(keys []uint64, hash func(uint64) uint64) float64 {
	shift := 64 - bits.Len(uint(len(keys)-1))
	chain := map[uint64]int{}
	sum := 0
	for _, k := range keys {
		b := hash(k) >> shift
		chain[b]++
		sum += chain[b]
	}
	return float64(sum) / float64(len(keys))
}

// No family may pile up, whatever the seed. The unseeded multiplication that
// the last but one family was made for puts it all in one bucket.
func TestHashSpreads(t *testing.T) {
	const n = 4096
	seeds := 100
	if testlevel.Quick() {
		seeds = 20
	}
	for name, keys := range families(n) {
		worst, one, xx := 0.0, 0.0, 0.0
		for seed := range uint64(seeds) {
			h := newHasher(seed)
			worst = max(worst, cost(keys, h.sum))
			one = max(one, cost(keys, func(k uint64) uint64 { return fold1(&h, k) }))
			xx = max(xx, cost(keys, func(k uint64) uint64 { return xxh(seed, k) }))
		}
		t.Logf("%-20s worst of %d seeds: %.2f (one round %.2f, xxhash %.2f)", name, seeds, worst, one, xx)
		require.Less(t, worst, 2.0, name)
	}
	piled := cost(families(n)["unseeded multiply"], func(k uint64) uint64 { return k * 0x9e3779b97f4a7c15 })
	require.Greater(t, piled, float64(n)/4, "the attack does not work even on its victim")
}

// A seed must decide the hash in full: the set that collides under one seed
// has to fall apart under the next.
func TestHashCollisionsDoNotCarryOver(t *testing.T) {
	const n = 512
	h := newHasher(1)
	var keys []uint64
	for k := uint64(0); len(keys) < n; k++ {
		if h.sum(k)>>55 == 0 {
			keys = append(keys, k)
		}
	}
	require.Greater(t, cost(keys, h.sum), float64(n)/4)
	for seed := uint64(2); seed < 100; seed++ {
		other := newHasher(seed)
		require.Less(t, cost(keys, other.sum), 2.0, "seed %d", seed)
	}
}
