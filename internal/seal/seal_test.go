package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func pair(t testing.TB, every int64) (*Sealer, *Opener) {
	secret := make([]byte, SecretSize)
	_, _ = rand.Read(secret)
	s, err := NewSealer(secret, every)
	require.NoError(t, err)
	o, err := NewOpener(secret, every)
	require.NoError(t, err)
	clear(secret) // they have copies
	return s, o
}

// openAll opens a stream and returns the contents until the first fault, and that.
func openAll(o *Opener, stream []byte) (out []byte, err error) {
	for {
		n, err := o.Size(stream)
		if err != nil || n == 0 || n > len(stream) {
			return out, err
		}
		if out, err = o.Open(out, stream[:n]); err != nil {
			return out, err
		}
		stream = stream[n:]
	}
}

func TestStream(t *testing.T) {
	for _, every := range []int64{RekeyAfter, 1, 1000, MaxContents} {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			s, o := pair(t, every)
			r := mrand.New(mrand.NewPCG(1, uint64(every)))
			var stream, want []byte
			for i := range 200 {
				n := 1 + r.IntN(300)
				if i%50 == 0 {
					n = MaxContents
				}
				contents := make([]byte, n)
				for k := range contents {
					contents[k] = byte(r.Uint32())
				}
				before := len(stream)
				var err error
				stream, err = s.Append(stream, contents)
				require.NoError(t, err)
				require.Equal(t, n+Overhead, len(stream)-before)
				want = append(want, contents...)
			}
			got, err := openAll(o, stream)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		})
	}
}

func TestLimits(t *testing.T) {
	s, o := pair(t, RekeyAfter)
	for _, n := range []int{0, MaxContents + 1} {
		b, err := s.Append([]byte("kept"), make([]byte, n))
		require.ErrorContains(t, err, fmt.Sprintf("a record of %d bytes", n))
		require.Equal(t, "kept", string(b))
	}
	_, err := NewSealer(make([]byte, 31), RekeyAfter)
	require.ErrorContains(t, err, "31 bytes")
	_, err = NewOpener(nil, RekeyAfter)
	require.ErrorContains(t, err, "0 bytes")
	n, err := o.Size(make([]byte, HeaderSize-1))
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = o.Open(nil, make([]byte, Overhead-1))
	require.ErrorIs(t, err, ErrBroken)
}

// records seals n records whose contents are their numbers.
func records(t testing.TB, s *Sealer, n int) (list [][]byte) {
	for i := range n {
		r, err := s.Append(nil, binary.LittleEndian.AppendUint64(nil, uint64(i)))
		require.NoError(t, err)
		list = append(list, r)
	}
	return list
}

// TestTampering: whatever was done to a stream, all before it is delivered, and nothing after it.
func TestTampering(t *testing.T) {
	const at, count = 3, 8
	cases := map[string]func(list [][]byte) [][]byte{
		"dropped":   func(l [][]byte) [][]byte { return slices.Delete(l, at, at+1) },
		"repeated":  func(l [][]byte) [][]byte { return slices.Insert(l, at, l[at-1]) },
		"replayed":  func(l [][]byte) [][]byte { return slices.Insert(l, at, l[0]) },
		"reordered": func(l [][]byte) [][]byte { l[at], l[at+1] = l[at+1], l[at]; return l },
		// By a whole tag: the next record may begin with the last byte of this one.
		"cut short": func(l [][]byte) [][]byte { l[at] = l[at][:len(l[at])-tagSize]; return l },
		"longer":    func(l [][]byte) [][]byte { l[at] = append(slices.Clip(l[at]), 0); l[at+1] = nil; return l },
		"invented":  func(l [][]byte) [][]byte { l[at] = make([]byte, len(l[at])); return l },
		"tags exchanged": func(l [][]byte) [][]byte {
			for i := range tagSize {
				a, b := l[at], l[at+1]
				a[len(a)-1-i], b[len(b)-1-i] = b[len(b)-1-i], a[len(a)-1-i]
			}
			return l
		},
		"sealed parts exchanged": func(l [][]byte) [][]byte {
			a, b := l[at], l[at+1]
			l[at] = append(slices.Clip(a[:HeaderSize]), b[HeaderSize:]...)
			l[at+1] = append(slices.Clip(b[:HeaderSize]), a[HeaderSize:]...)
			return l
		},
	}
	for bit := range 8 * (8 + Overhead) { // the length of a record
		cases[fmt.Sprintf("bit %d flipped", bit)] = func(l [][]byte) [][]byte { l[at][bit/8] ^= 1 << (bit % 8); return l }
	}
	for name, change := range cases {
		for _, every := range []int64{RekeyAfter, 40} {
			s, o := pair(t, every)
			list := change(records(t, s, count))
			got, err := openAll(o, bytes.Join(list, nil))
			if name == "longer" {
				require.Len(t, got, 8*(at+1), name) // the byte is behind that record
			} else {
				require.Len(t, got, 8*at, name)
			}
			require.ErrorIs(t, err, ErrBroken, name)
			require.ErrorContains(t, err, fmt.Sprintf("record %d ", len(got)/8), name)
			for i := range len(got) / 8 {
				require.Equal(t, uint64(i), binary.LittleEndian.Uint64(got[8*i:]), name)
			}
		}
	}
}

// TestLengthFoundAtOnce: a changed length is a fault when the header is there, not when all bytes
// are that it asks for.
func TestLengthFoundAtOnce(t *testing.T) {
	for bit := range 32 {
		s, o := pair(t, RekeyAfter)
		r := records(t, s, 1)[0]
		r[bit/8] ^= 1 << (bit % 8)
		_, err := o.Size(r[:HeaderSize])
		require.ErrorIs(t, err, ErrBroken, "bit %d", bit)
	}
}

// TestOtherDirection: what one end has sealed is nothing that the other end could have.
func TestOtherDirection(t *testing.T) {
	s, _ := pair(t, RekeyAfter)
	_, o := pair(t, RekeyAfter)
	_, err := o.Size(records(t, s, 1)[0])
	require.ErrorIs(t, err, ErrBroken)
}

// TestNothingIsLeft: contents that fail their check are not left behind dst.
func TestNothingIsLeft(t *testing.T) {
	s, o := pair(t, RekeyAfter)
	r, err := s.Append(nil, bytes.Repeat([]byte("secret!!"), 512))
	require.NoError(t, err)
	r[len(r)-1] ^= 1
	room := make([]byte, 0, 8192)
	out, err := o.Open(room, r)
	require.ErrorIs(t, err, ErrBroken)
	require.Empty(t, out)
	require.NotContains(t, string(room[:cap(room)]), "secret")
}

// TestGenerations: each generation has other keys, and numbers go on.
func TestGenerations(t *testing.T) {
	s, _ := pair(t, 1)
	first := bytes.Clone(s.h.secret)
	a := records(t, s, 1)[0]
	b := records(t, s, 1)[0]
	require.NotEqual(t, first, s.h.secret)
	require.NotEqual(t, a[HeaderSize:], b[HeaderSize:])
	require.EqualValues(t, 2, s.h.seq)
}

// TestNoAllocation: the path of short messages allocates nothing.
func TestNoAllocation(t *testing.T) {
	s, o := pair(t, RekeyAfter)
	contents, out, record := make([]byte, 100), make([]byte, 0, 200), make([]byte, 0, 200)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		record, _ = s.Append(record[:0], contents)
		if n, err := o.Size(record); err != nil || n != len(record) {
			panic(err)
		}
		if _, err := o.Open(out[:0], record); err != nil {
			panic(err)
		}
	}))
}

// FuzzOpener: bytes of a stranger are never contents, and end nothing but the stream.
func FuzzOpener(f *testing.F) {
	secret := make([]byte, SecretSize)
	s, err := NewSealer(secret, 64)
	require.NoError(f, err)
	whole := bytes.Join(records(f, s, 5), nil)
	f.Add(whole, uint16(0), byte(0))
	f.Add(whole[:40], uint16(9), byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint16, flip byte) {
		o, err := NewOpener(secret, 64)
		require.NoError(t, err)
		if len(b) > 0 {
			b = bytes.Clone(b)
			b[int(at)%len(b)] ^= flip
		}
		got, err := openAll(o, b)
		s, errSeal := NewSealer(secret, 64)
		require.NoError(t, errSeal)
		good := 0 // bytes of whole that b begins with
		for good < min(len(b), len(whole)) && b[good] == whole[good] {
			good++
		}
		var want []byte
		for i, r := range records(t, s, 5) {
			if good < (i+1)*len(r) {
				break
			}
			want = binary.LittleEndian.AppendUint64(want, uint64(i))
		}
		require.Equal(t, want, got)
		if rest := b[len(want)/8*(8+Overhead):]; err == nil && len(want) < 40 {
			require.True(t, len(rest) < HeaderSize || bytes.Equal(rest[:HeaderSize], whole[len(b)-len(rest):][:HeaderSize]))
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, o := pair(b, RekeyAfter)
			contents, out, record := make([]byte, n), make([]byte, 0, n), make([]byte, 0, n+Overhead)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				record, _ = s.Append(record[:0], contents)
				_, _ = o.Size(record)
				if _, err := o.Open(out, record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
