package verbstest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// notADevices are the statements of TMO 1 to 5, 7.2 and 8 that no test of a device can check, each
// with the reason in a word.
var notADevices = map[string]string{
	"1.1: the values of mlx5, the detection rule for old firmware":                       "mlx5",
	"1.2: the list is sized to a power of two; the command QP; 33 buffers; kernel state": "mlx5",
	"1.2: PD bit": "implied", // CreateSRQ is a method of the PD
	"1.3: QP numbers are exchanged, modes agreed": "host",
	"1.4: GRH of UD":    "UD",
	"1.4: sizes of CQs": "host",
	"1.5: cgo":          "binding",
	"2.3: buffer and registration are kept until the FIN":         "host",
	"2.3: max_dest_rd_atomic of the sender is 1 or more":          "host",
	"2.4: ids with generation":                                    "host",
	"2.6: conventions":                                            "host",
	"3.1: offsets in the structure":                               "ABI",
	"3.3: context without the extended table":                     "ABI",
	"3.4: indexes of slots, rings, stale addresses":               "mlx5",
	"4.1: opcode & RECV is a trap":                                "host",
	"4.3: internal codes":                                         "mlx5",
	"4.5: one lock, unlink at MATCH":                              "host",
	"5.3, 5.4: when C advances and is reported":                   "host",
	"5.5: depth of the untagged ring":                             "host",
	"5.6: model check":                                            "model",
	"7.2, scenarios 20, 21, 24, 40, 41, 43, 45, 50 to 52, 57, 58": "host",
	"8.1: lost packets, timeout, max_rd_atomic of both ends":      "wire",
	"8.1: UCX's defaults":                                         "UCX",
	"8.2: zero-based regions, windows, TSO, IP_CSUM":              "optional",
	"8.3: what mlx5 logs":                                         "mlx5",
	"8.4: acknowledging events":                                   "implied", // PollAsync does
}

// TestRules: each rule has a test, all for the same devices where several rules have it, and names
// are unique.
func TestRules(t *testing.T) {
	names, tests := map[string]bool{}, map[string]devices{}
	for _, c := range slices.Concat(rules, scenarios) {
		require.False(t, names[c.name], "%s twice", c.name)
		names[c.name] = true
		require.NotEmpty(t, c.says, c.name)
		require.NotNil(t, c.test, "%s has no test: %s", c.name, c.says)
		on, shared := tests[c.testName()]
		require.True(t, !shared || on == c.on, "%s is for other devices than what has the same test", c.name)
		tests[c.testName()] = c.on
	}
	for what, why := range notADevices {
		require.NotContains(t, why, " ", what)
	}
}
