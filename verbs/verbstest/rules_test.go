package verbstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notADevices are the statements of TMO 1 to 5, 7.2 and 8 that no device can be asked about, and why in a word.
var notADevices = map[string]string{
	"1.1: the values of mlx5, the detection rule for old firmware":                       "mlx5",
	"1.2: the list is sized to a power of two; the command QP; 33 buffers; kernel state": "mlx5",
	"1.2: PD bit": "implied", // CreateSRQ is a method of the PD
	"1.3: QP numbers are exchanged, modes agreed": "host",
	"1.4: GRH of UD":    "UD",
	"1.4: sizes of CQs": "host",
	"1.5: cgo":          "binding",
	"2.3: buffer and registration are kept until the FIN":    "host",
	"2.4: ids with generation":                               "host",
	"2.6: conventions":                                       "host",
	"3.1: offsets in the structure":                          "ABI",
	"3.3: context without the extended table":                "ABI",
	"3.4: indexes of slots, rings, stale addresses":          "mlx5",
	"4.1: opcode & RECV is a trap":                           "host",
	"4.3: internal codes":                                    "mlx5",
	"4.5: one lock, unlink at MATCH":                         "host",
	"5.3, 5.4: when C advances and is reported":              "host",
	"5.5: depth of the untagged ring":                        "host",
	"5.6: model check":                                       "model",
	"7.2, rows 20, 21, 24, 40, 41, 43, 45, 50 to 52, 57, 58": "host",
	"8.1: lost packets, timeout, max_rd_atomic of both ends": "wire",
	"8.1: UCX's defaults":                                    "UCX",
	"8.2: zero-based regions, windows, TSO, IP_CSUM":         "optional",
	"8.3: what mlx5 logs":                                    "mlx5",
	"8.4: acknowledging events":                              "implied", // PollAsync does
}

// ownTests are the tests of this package that need the software device or no device, and the rules that they prove.
var ownTests = map[string]string{
	"TestValues":  "2.3/opcodes 3.5/strings 4.1/values 8.1/constants 8.1/rnr-codes",
	"TestHeaders": "2.1/tmh 2.2/rvh 2.5/order",

	"TestRace01OnePacket":              "7.2/1",
	"TestRace02SeveralPackets":         "7.2/2",
	"TestRace03Rendezvous":             "7.2/3",
	"TestRace06DormantInDevice":        "7.2/5 7.2/6",
	"TestRace11SyncLost":               "7.2/11",
	"TestRace12StaleCounts":            "7.2/12",
	"TestRace19DelTwice":               "7.2/19",
	"TestRace22ForcedDelOfLive":        "7.2/22",
	"TestRace27ChainFails":             "7.2/27",
	"TestRace28NoUntaggedBuffer":       "7.2/28",
	"TestRace29SenderGivesUp":          "7.2/29",
	"TestRace30ExpectedWithoutBuffers": "7.2/30",
	"TestRace31FinWithoutBuffer":       "7.2/31",
	"TestRace32EagerTooLong":           "7.2/32",
	"TestRace34RendezvousTooLong":      "7.2/33 7.2/34",
	"TestRace35ZeroLength":             "7.2/35",
	"TestRace36EmptyRendezvous":        "7.2/36",
	"TestRace37MatchAll":               "7.2/37",
	"TestRace38BitsOutsideMask":        "7.2/38",
	"TestRace42TwoSources":             "7.2/42",
	"TestRace47SenderGoneDuringRead":   "7.2/47",
	"TestRace48DelDuringRendezvous":    "7.2/17 7.2/48",
	"TestRace49BadKey":                 "7.2/49",
	"TestRace53NoTagFlood":             "7.2/53",
	"TestRace54HandleReuse":            "7.2/54",
	"TestRace55Teardown":               "7.2/55",
	"TestRace56Limit":                  "7.2/56",
	"TestUnexpectedCutShort":           "5.1/H",

	"TestRules": "",
}

// TestRules compares the rules with the tests: each rule is proved by a test that runs on any device, but for those of constants,
// and each test proves rules that there are.
func TestRules(t *testing.T) {
	proved := map[string]int{}
	known := map[string]bool{}
	for _, r := range rules {
		require.False(t, known[r.id], "%s twice", r.id)
		known[r.id] = true
	}
	prove := func(test, ids string) {
		for _, id := range strings.Fields(ids) {
			require.True(t, known[id], "%s proves %s, which is no rule", test, id)
			proved[id]++
		}
	}
	for _, c := range cases {
		require.NotEmpty(t, c.rules, c.name)
		prove(c.name, c.rules)
	}
	for _, c := range plainCases {
		require.NotEmpty(t, c.rules, c.name)
		prove(c.name, c.rules)
	}
	for _, c := range tagCases {
		require.NotEmpty(t, c.rules, c.name)
		prove(c.name, c.rules)
	}
	for _, name := range []string{"TestValues", "TestHeaders"} {
		prove(name, ownTests[name])
	}
	for _, r := range rules {
		require.NotZero(t, proved[r.id], "no test proves %s: %s", r.id, r.says)
	}
	for what, why := range notADevices {
		require.NotContains(t, why, " ", what)
	}
	found := testFuncs(t)
	for name := range found {
		require.Contains(t, ownTests, name)
	}
	for name, ids := range ownTests {
		require.True(t, found[name], "%s is no test", name)
		prove(name, ids)
	}
}

// testFuncs are the names of this package's tests. A case of the suite that no table has would be unused, which the linter finds.
func testFuncs(t *testing.T) map[string]bool {
	out := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				out[fn.Name.Name] = true
			}
		}
	}
	return out
}
