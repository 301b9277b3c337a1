package abi

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// compilers are the names of C compilers for each architecture, first those of Debian.
var compilers = map[string][]string{
	"amd64": {"x86_64-linux-gnu-gcc"},
	"arm64": {"aarch64-linux-gnu-gcc"},
}

// header evaluates C expressions behind #include <infiniband/verbs.h>, for one architecture. They
// are the initial values of an array in an object file, so that nothing has to run.
func header(t *testing.T, compiler string, expressions []string) []uint64 {
	dir := t.TempDir()
	source, object := filepath.Join(dir, "values.c"), filepath.Join(dir, "values.o")
	compile := func(text string) ([]byte, error) {
		require.NoError(t, os.WriteFile(source, []byte("#include <infiniband/verbs.h>\n"+text), 0o600))
		// A cross compiler does not look where the header is.
		return exec.Command(compiler, "-c", "-o", object, "-idirafter", "/usr/include", source).CombinedOutput()
	}
	if out, err := compile(""); err != nil {
		t.Skipf("needs a C compiler and infiniband/verbs.h (Debian: gcc, libibverbs-dev): %v\n%s", err, out)
	}
	var text strings.Builder
	text.WriteString("const unsigned long long values[] = {\n")
	for _, e := range expressions {
		fmt.Fprintf(&text, "\t(unsigned long long)(%s),\n", e)
	}
	text.WriteString("};\n")
	out, err := compile(text.String())
	require.NoError(t, err, "%s", out)

	f, err := elf.Open(object)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Name != "values" {
			continue
		}
		require.EqualValues(t, 8*len(expressions), s.Size)
		b, err := f.Sections[s.Section].Data()
		require.NoError(t, err)
		values := make([]uint64, len(expressions))
		for i := range values {
			values[i] = f.ByteOrder.Uint64(b[int(s.Value)+8*i:])
		}
		return values
	}
	require.NoError(t, errors.New("no symbol values"))
	return nil
}
