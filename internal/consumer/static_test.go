//go:build linux && (amd64 || arm64)

package consumer

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestStatic: a program is static, and has nothing of the driver for RDMA devices, unless it
// imports that: then it asks for a loader.
func TestStatic(t *testing.T) {
	testlevel.SkipIfQuick(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	driver := filepath.Join(dir, "driver.go")
	require.NoError(t, os.WriteFile(driver, []byte("package main\n\nimport _ \"github.com/tagmatch/tagmatch/verbs/ibverbs\"\n"), 0o644))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "examples/ring/driver.go"): driver}})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay")
	require.NoError(t, os.WriteFile(file, overlay, 0o644))
	t.Setenv("CGO_ENABLED", "0")
	for name, c := range map[string]struct {
		args    []string
		dynamic bool
	}{
		"ring":            {[]string{"./examples/ring"}, false},
		"ring-driver":     {[]string{"-overlay", file, "./examples/ring"}, true},
		"tagmatch":        {[]string{"./cmd/tagmatch"}, true},
		"tagmatch-nordma": {[]string{"-tags", "nordma", "./cmd/tagmatch"}, false},
	} {
		out := filepath.Join(dir, name)
		run(t, root, "go", append([]string{"build", "-o", out}, c.args...)...)
		f, err := elf.Open(out)
		require.NoError(t, err)
		require.Equal(t, c.dynamic, slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), name)
		require.NoError(t, f.Close())
		info, err := buildinfo.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, c.dynamic, slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/ebitengine/purego" }), name)
	}
}
