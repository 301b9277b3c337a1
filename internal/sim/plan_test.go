package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoadIsStrict checks that nothing in a file is ignored: a plan edited by hand plays as it
// reads, or not at all.
func TestLoadIsStrict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	p := NewPlan(1)
	p.Steps = []Step{{Do: OpRecv, Mask: MaskSource}}
	require.NoError(t, p.Save(file))
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, c := range []struct{ old, new, err string }{
		{`"Mask": "source"`, `"Mask": "sorce"`, `step 0 has the mask "sorce": use one of ["source" "number" "parity" "any"]`},
		{`"Mask": "source"`, `"Mask": "source", "Typo": 1`, `unknown field "Typo"`},
		{`"Ranks"`, `"Ranx"`, `unknown field "Ranx"`},
		{`"Seed": 1`, `"Seed": 1, "Steps2": []`, `unknown field "Steps2"`},
		{"\n}\n", "\n}\n{}", "something follows"},
		{"\n}\n", "\n}\n}", "something follows"},
		{"\n}\n", "\n", "unexpected EOF"},
	} {
		bad := strings.Replace(string(good), c.old, c.new, 1)
		require.NotEqual(t, string(good), bad)
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o600))
		_, err := Load(file)
		require.ErrorContains(t, err, c.err)
		require.ErrorContains(t, err, file)
	}
	_, err = Run(&Plan{Params: p.Params, Steps: []Step{{Do: OpRecv, Mask: "sorce"}}}, nil)
	require.ErrorContains(t, err, "sorce")
	for _, m := range masks {
		p.Steps[0].Mask = m
		require.NoError(t, p.check())
	}
}

// TestSaveNew checks that a plan never overwrites another file.
func TestSaveNew(t *testing.T) {
	dir := t.TempDir()
	p := NewPlan(7)
	first, err := p.SaveNew(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "sim-7.json"), first)
	again, err := p.SaveNew(dir)
	require.NoError(t, err)
	require.Equal(t, first, again, "it is there already")

	other := NewPlan(7)
	other.Steps = other.Steps[:1]
	second, err := other.SaveNew(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "sim-7-2.json"), second)
	for file, want := range map[string]*Plan{first: p, second: other} {
		got, err := Load(file)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = p.SaveNew(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "none")
}
