package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What is checked in is what this program writes. The first line, a comment, names the command.
func TestCurrent(t *testing.T) {
	dir := t.TempDir()
	asm, stubs := filepath.Join(dir, "kernels_amd64.s"), filepath.Join(dir, "kernels_amd64.go")
	run := exec.Command("go", "run", ".", "-out", asm, "-stubs", stubs, "-pkg", "kernel")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []string{asm, stubs} {
		if !bytes.Equal(behindFirstLine(t, file), behindFirstLine(t, filepath.Join("..", filepath.Base(file)))) {
			t.Errorf("%s is not what is generated: go generate ./coll/internal/kernel", filepath.Base(file))
		}
	}
}

func behindFirstLine(t *testing.T, file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return rest
}
