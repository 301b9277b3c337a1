//go:build linux

package shm

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
)

// hostID is equal in processes between which shared memory can work: of the same boot of a kernel,
// the same user, and the same PID, network (for abstract sockets) and IPC namespaces. If these
// cannot be found out it is random, so that shared memory is not tried.
func hostID() (id [16]byte) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	text := fmt.Sprintf("tagmatch shm %s %d", strings.TrimSpace(string(boot)), os.Geteuid())
	for _, ns := range []string{"pid", "net", "ipc"} {
		name, nerr := os.Readlink("/proc/self/ns/" + ns)
		if nerr != nil {
			err = nerr
		}
		text += " " + name
	}
	if err != nil {
		_, _ = rand.Read(id[:])
		return id
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}
