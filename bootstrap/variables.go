package bootstrap

import (
	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// Names of the environment variables that this package, and the launchers' clients, read.
const (
	EnvRank           = "RANK"
	EnvWorldSize      = "WORLD_SIZE"
	EnvLocalRank      = "LOCAL_RANK"
	EnvLocalWorldSize = "LOCAL_WORLD_SIZE"
	EnvMasterAddr     = "MASTER_ADDR"
	EnvMasterPort     = "MASTER_PORT"

	EnvBootstrap     = rendezvous.EnvBootstrap
	EnvStore         = "TAGMATCH_STORE"
	EnvJobID         = "TAGMATCH_JOB_ID"
	EnvSecret        = rendezvous.EnvSecret
	EnvSecretFile    = rendezvous.EnvSecretFile
	EnvRequireSecret = "TAGMATCH_REQUIRE_SECRET"
	EnvTLS           = rendezvous.EnvTLS
	EnvListen        = rendezvous.EnvListen
	EnvNetdev        = "TAGMATCH_NETDEV"
	EnvPorts         = rendezvous.EnvPorts
	EnvJoinTimeout   = rendezvous.EnvJoinTimeout
	EnvRendezvousFD  = "TAGMATCH_RENDEZVOUS_FD"
	EnvLaunchFD      = link.Env
	EnvPMIxLibrary   = space.EnvPMIxLibrary
	EnvPin           = "TAGMATCH_PIN" // not read here, but by programs that pin themselves
)

// Variable describes an environment variable.
type Variable struct {
	Name    string
	Meaning string
	Default string
	Secret  bool // its value must not be shown
}

// Variables lists the variables that Detect and imported clients of launchers read, and the others
// that `tagmatch run` sets.
func Variables() []Variable {
	return []Variable{
		{Name: EnvBootstrap, Meaning: "launcher to use, instead of looking for one", Default: "auto"},
		{Name: EnvStore, Meaning: "directory on a file system of all ranks, in which rank 0 publishes its address"},
		{Name: EnvJobID, Meaning: "name of this run of the job in that directory", Default: "that of the batch system"},
		{Name: EnvRank, Meaning: "rank of this process"},
		{Name: EnvWorldSize, Meaning: "number of ranks"},
		{Name: EnvLocalRank, Meaning: "rank among those of this host"},
		{Name: EnvLocalWorldSize, Meaning: "number of ranks on this host"},
		{Name: EnvMasterAddr, Meaning: "host of rank 0"},
		{Name: EnvMasterPort, Meaning: "port at which rank 0 serves the rendezvous"},
		{Name: EnvSecret, Meaning: "job secret, 64 hexadecimal digits", Secret: true},
		{Name: EnvSecretFile, Meaning: "file with the job secret"},
		{Name: EnvRequireSecret, Meaning: "1: refuse a job to which no secret was given", Default: "0"},
		{Name: EnvTLS, Meaning: "TLS between hosts: off, secret, or three PEM files as CERTIFICATE,KEY,ROOTS", Default: "off"},
		{Name: EnvListen, Meaning: "address at which rank 0 serves the rendezvous", Default: "loopback without a secret, else where MASTER_ADDR leads"},
		{Name: EnvNetdev, Meaning: "networks of this host for other hosts: a comma list of interface names, addresses and prefixes",
			Default: "all that are up, but for those of containers and virtual machines"},
		{Name: EnvPorts, Meaning: "TCP ports at which ranks may listen, as LOW-HIGH", Default: "any"},
		{Name: EnvJoinTimeout, Meaning: "how long to wait for all ranks to join", Default: "5m"},
		{Name: EnvRendezvousFD, Meaning: "listening socket that rank 0 inherits from tagmatch run"},
		{Name: EnvLaunchFD, Meaning: "line to tagmatch run"},
		{Name: EnvPMIxLibrary, Meaning: "PMIx library, for programs that import package bootstrap/pmix", Default: "libpmix.so.2"},
		{Name: EnvPin, Meaning: "processor of this rank, from tagmatch run --pin"},
	}
}
