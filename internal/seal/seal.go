// Package seal protects the bytes of one direction of a connection between two ends that share a
// secret: nobody else can read them, or change, leave out, repeat or move any unnoticed. It is
// pure: it makes records and opens them, and knows no connection.
//
// A record is
//
//	length   4 bytes, little-endian: of the contents, at most MaxContents
//	check    4 bytes: the first of AES(header key, number of the record ‖ length)
//	sealed   the contents, encrypted by AES-128-GCM, and the 16 bytes of its tag
//
// The nonce is the record's number, exclusive-ored to 12 secret bytes, as in TLS 1.3; numbers begin
// with 0 in each direction, and each direction has a secret of its own. The tag decides what is
// delivered. The check is there so that a changed length is found at once: the reader would wait
// for bytes that never come.
//
// Who stands between the ends still sees when they speak and how much, and can hold up or end what
// they say. An end between two records is no fault: it looks like that of the peer.
//
// Keys are derived by HKDF-SHA256 from the secret of their generation. After RekeyAfter bytes both
// ends derive the next secret from it, and forget the old one.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// SecretSize is the length of a direction's secret in bytes.
	SecretSize = 32
	// HeaderSize is how many bytes Opener.Size needs.
	HeaderSize = 8
	// Overhead is how many bytes a record is longer than its contents.
	Overhead = HeaderSize + tagSize
	// MaxContents is the most bytes of a record's contents.
	MaxContents = 64 << 10

	// RekeyAfter is how many bytes one generation of keys is for: 2^32 blocks of AES, in which what
	// sets AES-GCM apart from a perfect cipher is seen with a probability of 2^-65.
	RekeyAfter = 64 << 30

	keySize = 16
	tagSize = 16
	ivSize  = 12
)

// ErrBroken is the condition of a stream that is not the one that was sealed. It is final.
var ErrBroken = errors.New("bytes were changed, left out, repeated or moved on the way between the hosts")

// half is what both ends of a direction have in common.
type half struct {
	secret []byte // of this generation
	aead   cipher.AEAD
	header cipher.Block
	iv     [ivSize]byte
	seq    uint64 // number of the next record
	left   int64  // bytes until the next generation
	every  int64  // bytes of a generation

	nonce [ivSize]byte        // scratch, as the next
	block [aes.BlockSize]byte // of check
}

func (h *half) init(secret []byte, every int64) error {
	if len(secret) != SecretSize {
		return fmt.Errorf("seal: a secret of %d bytes: give %d", len(secret), SecretSize)
	}
	h.every = every
	return h.begin(append([]byte{}, secret...))
}

// begin derives the keys of a generation.
func (h *half) begin(secret []byte) error {
	var failed error
	derive := func(what string, n int) []byte {
		b, err := hkdf.Expand(sha256.New, secret, "tagmatch seal 1: "+what, n)
		failed = errors.Join(failed, err)
		return b
	}
	key, header, iv := derive("key", keySize), derive("header", keySize), derive("iv", ivSize)
	if failed != nil {
		return failed
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	if h.aead, err = cipher.NewGCM(block); err != nil {
		return err
	}
	if h.header, err = aes.NewCipher(header); err != nil {
		return err
	}
	copy(h.iv[:], iv)
	clear(h.secret)
	h.secret, h.left = secret, h.every
	return nil
}

// turn begins the next generation if it is due. A fault of the memory to be sealed may follow, so
// the record's number is not used up by it.
func (h *half) turn() error {
	if h.left > 0 {
		return nil
	}
	next, err := hkdf.Expand(sha256.New, h.secret, "tagmatch seal 1: next", SecretSize)
	if err != nil {
		return err
	}
	return h.begin(next)
}

// done counts a record.
func (h *half) done(contents int) {
	h.seq++
	h.left -= int64(contents + Overhead)
}

// number returns the nonce of the next record.
func (h *half) number() []byte {
	h.nonce = h.iv
	n := h.nonce[ivSize-8:]
	binary.BigEndian.PutUint64(n, binary.BigEndian.Uint64(n)^h.seq)
	return h.nonce[:]
}

// check returns the check of a header, valid until the next call.
func (h *half) check(length uint32) []byte {
	h.block = [aes.BlockSize]byte{}
	binary.LittleEndian.PutUint64(h.block[:], h.seq)
	binary.LittleEndian.PutUint32(h.block[8:], length)
	h.header.Encrypt(h.block[:], h.block[:])
	return h.block[:4]
}

// Sealer seals what one end sends. One goroutine at a time uses it.
type Sealer struct{ h half }

// NewSealer returns the sealer of a direction, whose secret it copies. Each generation of keys is
// for rekey bytes at least; both ends have the same, which is RekeyAfter but in tests.
func NewSealer(secret []byte, rekey int64) (*Sealer, error) {
	s := &Sealer{}
	if err := s.h.init(secret, rekey); err != nil {
		return nil, err
	}
	return s, nil
}

// Append appends to dst the next record, with contents, which have 1 to MaxContents bytes and do
// not overlap the room behind dst. If contents cannot be read and the fault ends the call, nothing
// has happened: the next call makes the record of that number.
func (s *Sealer) Append(dst, contents []byte) ([]byte, error) {
	h := &s.h
	if len(contents) == 0 || len(contents) > MaxContents {
		return dst, fmt.Errorf("seal: a record of %d bytes: it has 1 to %d", len(contents), MaxContents)
	}
	if err := h.turn(); err != nil {
		return dst, err
	}
	n := uint32(len(contents))
	dst = binary.LittleEndian.AppendUint32(dst, n)
	dst = append(dst, h.check(n)...)
	dst = h.aead.Seal(dst, h.number(), contents, nil)
	h.done(len(contents))
	return dst, nil
}

// Opener opens what the other end has sealed. One goroutine at a time uses it.
type Opener struct{ h half }

// NewOpener returns the opener of a direction; see NewSealer.
func NewOpener(secret []byte, rekey int64) (*Opener, error) {
	o := &Opener{}
	if err := o.h.init(secret, rekey); err != nil {
		return nil, err
	}
	return o, nil
}

// Size returns how many bytes the next record takes, which b begins with; 0: b has not even its
// header. The error is ErrBroken.
func (o *Opener) Size(b []byte) (int, error) {
	if len(b) < HeaderSize {
		return 0, nil
	}
	if err := o.h.turn(); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(b)
	if subtle.ConstantTimeCompare(o.h.check(n), b[4:HeaderSize]) != 1 || n == 0 || n > MaxContents {
		return 0, o.broken()
	}
	return int(n) + Overhead, nil
}

// Open appends to dst the contents of the next record, which has the length that Size has returned
// for it and does not overlap the room behind dst. After an error, which is ErrBroken, it has
// appended nothing; the room behind dst is undefined, and has nothing of the contents. If a fault
// of that room ends the call, nothing has happened, and the record can be opened elsewhere.
func (o *Opener) Open(dst, record []byte) ([]byte, error) {
	if len(record) < Overhead {
		return dst, o.broken()
	}
	out, err := o.h.aead.Open(dst, o.h.number(), record[HeaderSize:], nil)
	if err != nil {
		return dst, o.broken()
	}
	o.h.done(len(record) - Overhead)
	return out, nil
}

func (o *Opener) broken() error {
	return fmt.Errorf("record %d of the sealed connection fails its check: %w", o.h.seq, ErrBroken)
}
