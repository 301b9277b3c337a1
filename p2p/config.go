package p2p

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/settings"
)

// ProgressMode says who moves operations while the program computes.
type ProgressMode uint8

const (
	ProgressDefault ProgressMode = iota // what TAGMATCH_PROGRESS says, else ProgressAuto
	ProgressAuto                        // one goroutine of the World's
	// ProgressManual: nobody. Without a goroutine inside a call of this package nothing progresses,
	// not even Done channels or the detection of failures. The last messages that were sent over
	// TCP may leave this process only in the next call. The first Send to a rank that computes
	// waits until that rank makes progress, as the two have to connect; the Logger says so after
	// 10 s.
	ProgressManual
)

// AsyncMode sets whether the device makes progress while the program computes.
type AsyncMode uint8

const (
	AsyncDefault AsyncMode = iota // what TAGMATCH_ASYNC says, else AsyncAuto
	AsyncAuto                     // on with Transport auto, ProgressAuto and tags, if GOMAXPROCS is at least 2 when Init is called
	AsyncOn
	AsyncOff
)

// Config of Init. The zero value finds everything by itself. A field that is set wins over its
// TAGMATCH_ variable, which wins over the default; `tagmatch info` prints each value with its
// origin. For numbers, 0 = default, -1 = none. A program that depends on a default gives it:
// "auto", ProgressAuto, AsyncAuto, the number.
//
// Several devices, such as "shm,tcp", are named best first: each rank is reached over the first
// that can reach it. Only the first matches tags. "auto" is one device with all wires, which is
// better wherever it will do. With it TCP takes over where ranks of one host cannot share memory,
// and Logger gets a warning that says why. It does so at once where the kernel refuses, else when
// connecting has failed (see PeerTimeout). A device "shm" reaches the ranks of this host, user and
// namespaces; where sharing memory with one of them fails, that is an error.
type Config struct {
	// Bootstrap, nil: the launcher's; a plain run is a World of one. Init takes it over and closes
	// it with the World.
	Bootstrap Bootstrap
	// Device is "auto" (""), "shm" for shared memory inside a host, "tcp", a device of a driver
	// that the program imports (verbs.Register), or several with commas (TAGMATCH_DEVICE).
	Device string
	// Transport is "rc", where software matches all messages, "tmsrq", where the device matches
	// those that its tag list takes, or "auto" (""), which is "tmsrq" (TAGMATCH_TRANSPORT).
	Transport string
	// Secret is 32 random bytes, equal on all ranks, by which they authenticate connections; nil:
	// the Bootstrap's. It must not be changed before Init returns.
	Secret []byte
	// TLS encrypts and authenticates what goes over TCP, to rank 0's rendezvous and between ranks:
	// off (""), secret, or three PEM files as CERTIFICATE,KEY,ROOTS (TAGMATCH_TLS). All ranks have
	// one kind, or Init fails and names those that differ; it also fails with a Device of a driver,
	// whose messages would go in plain. Shared memory is as before. "secret" needs no files: the
	// sessions of TLS 1.3 are bound to the job's secret. With files each end also checks the
	// other's certificate: that it is of these roots, for servers and clients, and for the address
	// or host of that rank, or the name by which rank 0 was dialled. A rank says itself which host
	// it is on. Who has the secret and any certificate of these roots passes: use roots that are
	// this job's own. What was changed on its way ends the connection; sizes and times can still be
	// seen. Without TLS messages are not authenticated one by one.
	//
	// TLS needs a secret that only the ranks know. Connections of a Bootstrap that is given here
	// are not covered, and its secret must be private: bootstrap.Options.TLS has one see to both.
	TLS      string
	Progress ProgressMode // TAGMATCH_PROGRESS: auto or manual
	// JoinTimeout is how long Init waits for all ranks; default 5 minutes, -1: no limit
	// (TAGMATCH_JOIN_TIMEOUT).
	JoinTimeout time.Duration
	// SpinLimit is how long a waiter polls before it parks; default adaptive, below 50 us; at most
	// 1 s; -1 parks at once (TAGMATCH_SPIN_LIMIT).
	SpinLimit time.Duration
	// EagerLimit is the largest eager message in bytes, equal on all ranks; default 32 KiB,
	// with a device of a driver what suits that; at most 64 KiB (TAGMATCH_EAGER_LIMIT). A longer
	// message takes a memory region of the device until it is received; beyond 450,000 to one rank
	// further ones wait, in order.
	EagerLimit int
	// UnexpectedLimit is how many bytes unexpected messages may take here; default 64 MiB, -1: none
	// (TAGMATCH_UNEXPECTED_LIMIT). Each is charged with a record of 256 bytes and, up to
	// EagerLimit, with its bytes; a larger one stays in its sender's buffer until it is received.
	//
	// A held-up message that a waiting receive or probe matches is sent beyond the limit, with all
	// earlier ones of the same rank. Where more than 16 receives wait that one rank could satisfy,
	// all messages of that rank are sent. A rank that waits for one tag while other ranks flood it
	// with another stays within its limit.
	UnexpectedLimit int64
	// SendLimit is how many bytes messages may take here that wait to be sent, or to be announced
	// to their receiver: about 420 each, and their own of IsendVec; the last one may exceed it.
	// Default 1 GiB, -1: one message at a time (TAGMATCH_SEND_LIMIT).
	SendLimit int64
	// MaxTags is how many receives the device's tag list holds, unless Transport is rc; default
	// 1024, at most 65536, -1: none, software matches (TAGMATCH_MAX_TAGS).
	MaxTags int
	// OffloadMin is the size in bytes of the smallest receive that is offloaded to the device;
	// default 1 MiB, from which on a transfer that goes on while the program computes saves more
	// than it costs; -1: all are (TAGMATCH_OFFLOAD_MIN).
	OffloadMin int
	// Async sets whether the device makes progress while the program computes (TAGMATCH_ASYNC:
	// auto, on or off). It matches receives of a Comm and moves their bytes, over shared memory
	// with the sender's processor alone. Over TCP a processor of the receiver must copy out of the
	// socket: one that the program leaves free, or that of the computation. All else (raw messages,
	// receives kept in software, completing requests) needs calls or the progress goroutine.
	//
	// The device begins where a call returns while a message of 1 MiB or more is under way: in a
	// receive of the device whose buffer has room for one, or as a rendezvous at either end. What
	// is shorter takes less time than to wake the device.
	Async AsyncMode
	// PeerTimeout is how soon the loss of a host or network is detected, see Losses in the package
	// comment; default 20 s, at least 6 s, at most 1 h (TAGMATCH_PEER_TIMEOUT). Connecting to a
	// rank ends when its host is silent for that time, or refuses: for 1 second where nobody
	// listens, or where a seccomp filter refuses the system calls, for PeerTimeout where an end
	// lacks descriptors or memory, which the error names. A process that is stopped is waited for.
	PeerTimeout time.Duration
	// Ports bounds the TCP ports at which this rank listens, as LOW-HIGH, for firewalls and network
	// policies; default any (TAGMATCH_PORTS). A host needs one for each of its ranks, one more for
	// the rendezvous of rank 0, unless MASTER_PORT gives that, and one for each sixth rank of the
	// job, which passes on what others have put; without that rank 0 does it.
	Ports string
	// Logger gets warnings, and the state of a World whose Shutdown fails; nil: silent, or with
	// TAGMATCH_LOG (warn, info or debug) one to the standard error output. It may be called from
	// any goroutine, and must not call the World. A join that takes long says so there in any case.
	Logger *slog.Logger
}

const secretSize = 32

// Validate reports every fault of c at once (errors.Join). Init calls it.
func (c *Config) Validate() error {
	return invalid(append(c.settings().Faults(), c.secretFaults()...))
}

func (c *Config) secretFaults() []error {
	if c.Secret == nil || len(c.Secret) == secretSize {
		return nil
	}
	return []error{fmt.Errorf("Config.Secret is %d bytes long: give %d random bytes, or nil for the launcher's", len(c.Secret), secretSize)}
}

// settings are the fields that variables may set.
func (c *Config) settings() settings.Config {
	return settings.Config{Device: c.Device, Transport: c.Transport, Progress: settings.Progress(c.Progress), JoinTimeout: c.JoinTimeout,
		SpinLimit: c.SpinLimit, EagerLimit: c.EagerLimit, UnexpectedLimit: c.UnexpectedLimit, SendLimit: c.SendLimit,
		MaxTags: c.MaxTags, OffloadMin: c.OffloadMin, Async: settings.Async(c.Async), PeerTimeout: c.PeerTimeout,
		TLS: c.TLS, Ports: c.Ports, Logger: c.Logger}
}

// resolve fills in variables and defaults.
func (c *Config) resolve() (settings.Config, error) {
	full, _, faults := c.settings().Resolve(os.Getenv)
	return full, invalid(slices.Concat(faults, c.secretFaults(), settings.Unknown(os.Environ())))
}

// invalid joins faults.
func invalid(faults []error) error {
	errs := make([]error, len(faults))
	for i, fault := range faults {
		errs[i] = invalidf("%v", fault)
	}
	return errors.Join(errs...)
}
