package p2p

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/settings"
)

// cardKey is the key under which every rank puts its card.
const cardKey = "p2p.card"

// cardVersion is the first byte of a card. It changes with anything of what follows.
const cardVersion = 2

// card is what a rank publishes through the Bootstrap before the ranks connect. Encoded it is a
// version, then these fields, each behind its length: the same in jobs of any size. Those of a card
// that was decoded are parts of what was.
type card struct {
	version byte   // of a card of another one nothing else is known
	terms   []byte // what all ranks have in common, compared as it is, see terms
	boot    []byte // of the kernel: equal in all containers; empty: not known
	host    []byte
	cpus    cpuSet // allowed processors
	noSHM   []byte // why shared memory does not work
	failure []byte // why this rank cannot join
	address []byte // of the engine
}

// Most bytes of fields of a card. With the address of one device, which is shorter without shared
// memory, these are 400 at most, unless the rank fails. Each further device adds about 150.
const (
	maxHost    = 64
	maxNoSHM   = 100
	maxFailure = 1 << 10
)

func newCard(c *settings.Config, secret []byte) card {
	t := terms{device: c.Device, transport: c.Transport, eager: c.EagerLimit, tls: c.Security().Kind(), check: secretCheck(secret)}
	return card{version: cardVersion, terms: t.encode(), boot: bootID(), host: head(hostName(), maxHost), cpus: processors()}
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown host"
	}
	return host
}

// head is the first bytes of a text.
func head(s string, most int) []byte {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return []byte(s)
}

func (c *card) encode() []byte {
	b := []byte{c.version}
	for _, f := range c.fields() {
		b = appendField(b, *f)
	}
	return b
}

func (c *card) fields() []*[]byte {
	return []*[]byte{&c.terms, &c.boot, &c.host, (*[]byte)(&c.cpus), &c.noSHM, &c.failure, &c.address}
}

// decodeCard decodes what a rank has put. Only the form is checked.
func decodeCard(b []byte) (c card, err error) {
	if len(b) == 0 {
		return c, errors.New("it is empty")
	}
	if c.version = b[0]; c.version != cardVersion {
		return c, nil
	}
	rest := fields(b[1:])
	for _, f := range c.fields() {
		if *f, err = rest.next(); err != nil {
			return c, err
		}
	}
	return c, rest.end()
}

// fields are the bytes of fields that follow each other.
type fields []byte

var errFields = errors.New("its fields and their lengths do not fit")

func appendField[T ~[]byte | ~string](b []byte, field T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}

// next takes a field off the front.
func (f *fields) next() ([]byte, error) {
	n, k := binary.Uvarint(*f)
	if k <= 0 || n > uint64(len(*f)-k) {
		return nil, errFields
	}
	field := (*f)[k:][:n:n]
	*f = (*f)[k+int(n):]
	return field, nil
}

func (f fields) end() error {
	if len(f) > 0 {
		return errFields
	}
	return nil
}

// terms are what all ranks must have in common.
type terms struct {
	device, transport, tls string // tls: its kind
	eager                  int
	check                  string // see secretCheck
}

func (t *terms) encode() []byte {
	var b []byte
	for _, s := range []string{t.device, t.transport, strconv.Itoa(t.eager), t.tls, t.check} {
		b = appendField(b, s)
	}
	return b
}

func decodeTerms(b fields) (t terms, err error) {
	var eager string
	for _, s := range []*string{&t.device, &t.transport, &eager, &t.tls, &t.check} {
		field, err := b.next()
		if err != nil {
			return t, err
		}
		*s = string(field)
	}
	if t.eager, err = strconv.Atoi(eager); err != nil {
		return t, errFields
	}
	return t, b.end()
}

// secretCheck is a hash by which ranks compare their secrets without revealing them. The
// authentication of connections would notice a difference too, but only at the first message, and
// not on all ranks.
func secretCheck(secret []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tagmatch p2p card: same secret?"))
	return string(h.Sum(nil)[:8])
}

// cards are those of all ranks, as these have put them: what is needed of one is decoded where it
// is needed.
type cards [][]byte

// of decodes the card of a rank, which agree has found good.
func (cs cards) of(rank int) card {
	c, _ := decodeCard(cs[rank])
	return c
}

// exchange publishes mine and returns the cards of all ranks.
func exchange(ctx context.Context, b Bootstrap, mine card) (cards, error) {
	if err := b.Put(ctx, cardKey, mine.encode()); err != nil {
		return nil, err
	}
	if err := b.Fence(ctx); err != nil {
		return nil, err
	}
	cs := make(cards, b.Size())
	for r := range cs {
		value, err := b.Get(ctx, r, cardKey)
		if err != nil {
			if errors.Is(err, bootstrap.ErrNotFound) {
				err = fmt.Errorf("%w: %s", err, sameBuild)
			}
			return nil, fmt.Errorf("rank %d's card: %w", r, err)
		}
		cs[r] = value
	}
	return cs, nil
}

// agree compares all cards with rank 0's. Every rank sees the same cards and reaches the same
// verdict, unless their builds differ.
func (cs cards) agree() error {
	var failures, differences []error
	var zero card
	for r := range cs {
		c, err := decodeCard(cs[r])
		if err != nil {
			return errorf(ErrProtocol, "rank %d's card: %v: %s", r, err, sameBuild)
		}
		if r == 0 {
			zero = c
		}
		if len(c.failure) > 0 {
			failures = append(failures, fmt.Errorf("rank %d on %s cannot take part: %s", r, c.host, c.failure))
		} else if diff := c.differs(&zero); diff != "" {
			differences = append(differences, invalidf("%s has %s", c.named(r), diff))
		}
	}
	if len(failures) > 0 {
		return errors.Join(short(failures)...)
	}
	return errors.Join(short(differences)...)
}

// sameBuild is what to do where ranks do not understand each other.
const sameBuild = "run the same build of the program on all ranks"

// named is how errors name a rank.
func (c *card) named(rank int) string {
	if len(c.host) == 0 {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d on %s", rank, c.host)
}

// differs names the differences that keep a rank from working with rank 0, and what to do.
func (c *card) differs(zero *card) string {
	if c.version != zero.version {
		return fmt.Sprintf("version %d of the cards that ranks exchange, rank 0 version %d: %s", c.version, zero.version, sameBuild)
	}
	if bytes.Equal(c.terms, zero.terms) {
		return ""
	}
	mine, err := decodeTerms(c.terms)
	its, errZero := decodeTerms(zero.terms)
	if err != nil || errZero != nil {
		return "settings in its card that differ from rank 0's, and cannot be read: " + sameBuild
	}
	return mine.differ(&its)
}

func (t *terms) differ(zero *terms) string {
	var diffs []string
	differ := func(what, mine, its string) {
		if mine != its {
			diffs = append(diffs, fmt.Sprintf("%s %s where rank 0 has %s", what, mine, its))
		}
	}
	differ("Device (TAGMATCH_DEVICE)", t.device, zero.device)
	differ("Transport (TAGMATCH_TRANSPORT)", t.transport, zero.transport)
	differ("EagerLimit (TAGMATCH_EAGER_LIMIT)", strconv.Itoa(t.eager), strconv.Itoa(zero.eager))
	differ("TLS (TAGMATCH_TLS)", t.tls, zero.tls)
	if t.check != zero.check {
		diffs = append(diffs, "another job secret than rank 0")
	}
	return strings.Join(diffs, ", ") + ": give all ranks the same"
}

// short limits the output of a fault that many ranks share.
func short(errs []error) []error {
	const most = 8
	if len(errs) <= most {
		return errs
	}
	return append(errs[:most:most], fmt.Errorf("and %d more ranks", len(errs)-most))
}

// hosts is, by rank, the lowest rank on the same machine. It is the same at all ranks.
func (cs cards) hosts() []int32 {
	type machine struct{ boot, host string }
	hosts, lowest := make([]int32, len(cs)), map[machine]int32{}
	for r := range cs {
		c := cs.of(r)
		m := machine{boot: string(c.boot)}
		if m.boot == "" {
			m.host = string(c.host)
		}
		if _, ok := lowest[m]; !ok {
			lowest[m] = int32(r)
		}
		hosts[r] = lowest[m]
	}
	return hosts
}

// locals returns rank and size among the ranks of this host: from the launcher or, where it does
// not tell, by host name; two hosts may have the same one.
func (cs cards) locals(i bootstrap.Info, me int) (rank, size int) {
	if i.LocalRank >= 0 && i.LocalSize > i.LocalRank {
		return i.LocalRank, i.LocalSize
	}
	mine := cs.of(me)
	for r := range cs {
		c := cs.of(r)
		if !bytes.Equal(c.host, mine.host) || !c.near(&mine) {
			continue
		}
		if r < me {
			rank++
		}
		size++
	}
	return rank, size
}
