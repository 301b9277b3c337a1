//go:build unix

package filestore

import (
	"fmt"
	"os"
	"syscall"
)

// private is an error if others than this user could put files into dir, or take its place.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no directory: give the name of one", dir)
	case ok && int(st.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to user %d, this process to user %d: give a directory of this user", dir, st.Uid, os.Getuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others (mode %v): make it private by chmod 700, or give another", dir, info.Mode().Perm())
	}
	return nil
}
