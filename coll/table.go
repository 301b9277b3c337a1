package coll

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// algorithm is a way to do an operation; all ranks take the same.
type algorithm struct {
	name string
	run  func(*call) error
	// most and ranks are limits: bytes, and members of the Group. The first algorithm whose limits
	// hold is taken, and the last one where none do.
	most, ranks int
}

const unlimited = math.MaxInt

// byHosts are the algorithms for Groups on several hosts, and bySwap those for members that share
// memory: over TCP messages cost more than waits.
const (
	byHosts = "hosts"
	bySwap  = "swap"
)

// mostSwap bytes, and ranksSwap, are up to where one wait is worth more than the fewest messages:
// among ranks that share a processor each wait is a switch of processes. mostDoubled are up to
// where the fewest messages are worth more than the fewest bytes, and fewRanks up to where halving,
// with fewer messages than direct algorithms, is no faster.
const (
	mostSwap    = 512
	ranksSwap   = 8
	mostDoubled = 32 << 10
	fewRanks    = 4
)

// algorithms by kind. Bytes are those of the vector, or of the block of one rank. The borders were
// measured with 2 to 16 ranks on two processors by `go run ./bench coll -algorithms`; those for
// more ranks than that follow from how many messages follow each other, and those by hosts from how
// many bytes go between hosts.
var algorithms = [kinds][]algorithm{
	barrier: {
		{"dissemination", disseminate, unlimited, 2},
		{bySwap, barrierSwap, unlimited, ranksSwap},
		{"dissemination", disseminate, unlimited, unlimited},
	},
	bcast: {
		{"all", bcastAll, unlimited, 4},
		{"tree", bcastTree, 64 << 10, unlimited},
		{"scatter", bcastScatter, 512 << 10, unlimited},
		{"chain", bcastChain, unlimited, unlimited},
	},
	reduce: {
		{"tree", reduceTree, 128 << 10, unlimited},
		{"direct", reduceDirect, unlimited, unlimited},
	},
	allReduce: slices.Insert(slices.Clone(flatAllReduce), 3, algorithm{byHosts, allReduceHosts, unlimited, unlimited}),
	reduceScatter: {
		{"doubling", reduceScatterDoubling, 512, unlimited},
		{"direct", reduceDirect, unlimited, unlimited},
	},
	scan:   scans,
	exScan: scans,
	gather: {
		{"tree", gatherTree, 512, unlimited},
		{"direct", gatherDirect, unlimited, unlimited},
	},
	scatter: {
		{"tree", scatterTree, 512, unlimited},
		{"direct", scatterDirect, unlimited, unlimited},
	},
	allGather: {
		{"bruck", allGatherBruck, 2 << 10, unlimited},
		{byHosts, allGatherHosts, unlimited, unlimited},
		{"direct", allGatherDirect, unlimited, 64},
		{"ring", allGatherRing, unlimited, unlimited},
	},
	allToAll: {
		{"bruck", allToAllBruck, 256, unlimited},
		{"direct", allToAllDirect, unlimited, unlimited},
	},
	gatherV:    {{"direct", gatherVDirect, unlimited, unlimited}},
	scatterV:   {{"direct", scatterVDirect, unlimited, unlimited}},
	allGatherV: {{"direct", allGatherVDirect, unlimited, unlimited}},
	allToAllV:  {{"direct", allToAllVDirect, unlimited, unlimited}},
}

// flatAllReduce are those that take no notice of hosts, and so those for ranks on a host each.
var flatAllReduce = []algorithm{
	{"doubling", allReduceDoubling, mostDoubled, 2},
	{bySwap, allReduceSwap, mostSwap, ranksSwap},
	{"doubling", allReduceDoubling, mostDoubled, unlimited},
	{"direct", reduceDirect, unlimited, fewRanks},
	{"halving", allReduceHalving, mostScratch, unlimited},
	{"direct", reduceDirect, unlimited, unlimited},
}

var scans = []algorithm{
	{"chain", scanChain, unlimited, 8},
	{"doubling", scanDoubling, 64 << 10, unlimited},
	{"chain", scanChain, unlimited, unlimited},
}

// bytes is what decides on the algorithm. It is the same on all ranks.
func (c *call) bytes() int {
	switch c.kind {
	case scatter, reduceScatter:
		return len(c.out)
	case allToAll:
		return len(c.out) / c.size()
	}
	return len(c.in)
}

// algorithm is the one for c.
func (c *call) algorithm() func(*call) error {
	if run := c.g.rules.named[c.kind]; run != nil {
		return run
	}
	return c.choose(algorithms[c.kind])
}

// choose is the algorithm of a list for c.
func (c *call) choose(list []algorithm) func(*call) error {
	n, last := c.bytes(), len(list)-1
	for i := range list[:last] {
		a := &list[i]
		if n <= a.most && c.size() <= a.ranks && a.usable(c) {
			return a.run
		}
	}
	return list[last].run
}

// usable reports whether the members of the Group are where a is meant for.
func (a *algorithm) usable(c *call) bool {
	switch a.name {
	case byHosts:
		return c.g.layout.usable(c)
	case bySwap:
		return c.g.near
	}
	return true
}

// Environment names the variable that sets rules: a list with commas of check, and of algorithms
// such as allreduce:direct, each for an operation of any size.
const Environment = "TAGMATCH_COLL"

// rules are what the environment says.
type rules struct {
	text  string
	check bool // compare the calls of all ranks
	named [kinds]func(*call) error
}

func readRules() (rules, error) { return parseRules(os.Getenv(Environment)) }

func parseRules(text string) (rules, error) {
	r := rules{text: text, check: checked}
	if text == "" {
		return r, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		if item == "check" {
			r.check = true
			continue
		}
		if err := r.name(item); err != nil {
			return r, invalidf("%s=%s: %v", Environment, text, err)
		}
	}
	return r, nil
}

// name sets an algorithm by an item such as allreduce:direct.
func (r *rules) name(item string) error {
	operation, name, _ := strings.Cut(item, ":")
	for k := range kinds {
		if k.String() != operation {
			continue
		}
		i := slices.IndexFunc(algorithms[k], func(a algorithm) bool { return a.name == name })
		if i < 0 {
			return fmt.Errorf("%v has %s", k, names(k))
		}
		r.named[k] = algorithms[k][i].run
		return nil
	}
	return fmt.Errorf("%q is neither check nor an operation with its algorithm, such as allreduce:direct", item)
}

// names lists the algorithms of a kind.
func names(k kind) string {
	var list []string
	for _, a := range algorithms[k] {
		if !slices.Contains(list, a.name) {
			list = append(list, a.name)
		}
	}
	return strings.Join(list, ", ")
}
