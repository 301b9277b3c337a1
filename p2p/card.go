package p2p

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// cardVersion changes when a rank with an older version could not work with this one.
const cardVersion = 1

// card is what a rank publishes through the Bootstrap before the ranks connect. Fields are only
// ever added.
type card struct {
	Version   int    `json:"v"`
	Host      string `json:"host"`
	Device    string `json:"device"`
	Transport string `json:"transport"`
	Eager     int    `json:"eager"`
	TLS       string `json:"tls"`            // its kind
	CPUs      cpuSet `json:"cpus,omitempty"` // allowed processors
	Check     string `json:"check"`          // see secretCheck
	Address   []byte `json:"address,omitempty"`
	Boot      string `json:"boot,omitempty"`    // of the kernel: equal in all containers
	NoSHM     string `json:"no_shm,omitempty"`  // why shared memory does not work
	Failure   string `json:"failure,omitempty"` // why this rank cannot join
}

func newCard(c *settings.Config, secret []byte) card {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return card{
		Version: cardVersion, Host: host, Device: c.Device, Transport: c.Transport, Eager: c.EagerLimit, TLS: c.Security().Kind(),
		CPUs: processors(), Check: secretCheck(secret), Boot: bootID(),
	}
}

// secretCheck is a hash by which ranks compare their secrets without revealing them. The
// authentication of connections would notice a difference too, but only at the first message, and
// not on all ranks.
func secretCheck(secret []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tagmatch p2p card: same secret?"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// exchange publishes mine and returns the cards of all ranks.
func exchange(ctx context.Context, b Bootstrap, mine card) ([]card, error) {
	value, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	if err := b.Put(ctx, cardKey, value); err != nil {
		return nil, err
	}
	if err := b.Fence(ctx); err != nil {
		return nil, err
	}
	cards := make([]card, b.Size())
	for r := range cards {
		value, err := b.Get(ctx, r, cardKey)
		if err != nil {
			if errors.Is(err, bootstrap.ErrNotFound) {
				err = fmt.Errorf("%w: %s", err, sameBuild)
			}
			return nil, fmt.Errorf("rank %d's card: %w", r, err)
		}
		if err := json.Unmarshal(value, &cards[r]); err != nil {
			return nil, errorf(ErrProtocol, "rank %d's card: %v: %s", r, err, sameBuild)
		}
	}
	return cards, nil
}

// agree compares all cards with rank 0's. Every rank sees the same cards and reaches the same
// verdict.
func agree(cards []card) error {
	var errs []error
	for r := range cards {
		if f := cards[r].Failure; f != "" {
			errs = append(errs, fmt.Errorf("rank %d on %s cannot take part: %s", r, cards[r].Host, f))
		}
	}
	if len(errs) > 0 {
		return errors.Join(short(errs)...)
	}
	for r := 1; r < len(cards); r++ {
		if diff := cards[r].differs(&cards[0]); diff != "" {
			errs = append(errs, invalidf("rank %d on %s has %s", r, cards[r].Host, diff))
		}
	}
	return errors.Join(short(errs)...)
}

// sameBuild is what to do where ranks do not understand each other.
const sameBuild = "run the same build of the program on all ranks"

// differs names the differences that keep a rank from working with rank 0, and what to do.
func (c *card) differs(zero *card) string {
	if c.Version != zero.Version {
		return fmt.Sprintf("version %d of the cards that ranks exchange, rank 0 version %d: %s", c.Version, zero.Version, sameBuild)
	}
	var diffs []string
	differ := func(what, mine, its string) {
		if mine != its {
			diffs = append(diffs, fmt.Sprintf("%s %s where rank 0 has %s", what, mine, its))
		}
	}
	differ("Device (TAGMATCH_DEVICE)", c.Device, zero.Device)
	differ("Transport (TAGMATCH_TRANSPORT)", c.Transport, zero.Transport)
	differ("EagerLimit (TAGMATCH_EAGER_LIMIT)", strconv.Itoa(c.Eager), strconv.Itoa(zero.Eager))
	differ("TLS (TAGMATCH_TLS)", c.TLS, zero.TLS)
	if c.Check != zero.Check {
		diffs = append(diffs, "another job secret than rank 0")
	}
	if len(diffs) == 0 {
		return ""
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

// locals returns rank and size among the ranks of this host: from the launcher or, where it does
// not tell, by host name; two hosts may have the same one.
func locals(i bootstrap.Info, me int, cards []card) (rank, size int) {
	if i.LocalRank >= 0 && i.LocalSize > i.LocalRank {
		return i.LocalRank, i.LocalSize
	}
	for r := range cards {
		if cards[r].Host != cards[me].Host || !cards[r].near(&cards[me]) {
			continue
		}
		if r < me {
			rank++
		}
		size++
	}
	return rank, size
}
