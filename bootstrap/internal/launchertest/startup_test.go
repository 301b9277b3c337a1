//go:build linux && launchers

package launchertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkStartUp is the time from the start of a launcher to its end, with ranks that join the
// job, meet once and end; mpich is a program in C that does the same by MPI_Init and MPI_Finalize.
//
//	go test -tags launchers -run - -bench StartUp -benchtime 3x ./bootstrap/internal/launchertest
func BenchmarkStartUp(b *testing.B) {
	dir := b.TempDir()
	tagmatch, hello := filepath.Join(dir, "tagmatch"), filepath.Join(dir, "hello")
	source := filepath.Join(dir, "hello.c")
	const c = "#include <mpi.h>\nint main(int n, char **v) { MPI_Init(&n, &v); MPI_Barrier(MPI_COMM_WORLD); return MPI_Finalize(); }\n"
	if err := os.WriteFile(source, []byte(c), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, command := range [][]string{{"go", "build", "-o", tagmatch, "../../../cmd/tagmatch"}, {"mpicc.mpich", "-O2", "-o", hello, source}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{2, 64, 256} {
		ranks := strconv.Itoa(n)
		for _, l := range []struct {
			name    string
			command []string
		}{
			{"tagmatch", []string{tagmatch, "run", "-n", ranks, self}},
			{"mpiexec", []string{"mpiexec.hydra", "-n", ranks, self}},
			{"mpich", []string{"mpiexec.hydra", "-n", ranks, hello}},
		} {
			b.Run(fmt.Sprintf("%s/%d", l.name, n), func(b *testing.B) {
				for b.Loop() {
					cmd := exec.Command(l.command[0], l.command[1:]...)
					cmd.Env = append(clean(os.Environ()), roleVar+"=hello")
					if out, err := cmd.CombinedOutput(); err != nil {
						b.Fatalf("%v: %.2000s", err, out)
					}
				}
			})
		}
	}
}
