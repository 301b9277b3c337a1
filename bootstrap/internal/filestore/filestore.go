// Package filestore hands a value of rank 0 to all ranks of a job through a file in a directory
// that they share. Its methods may be called from any goroutine.
package filestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// Store is a directory. It implements space.Space.
type Store struct {
	id   space.Identity
	path string

	mu   sync.Mutex
	made bool // rank 0: the file is there, and its own
}

// Open prepares the directory dir, which it makes if need be. Its files are for this user alone:
// one that belongs to another user, or that others may write to, is refused. name must be the same
// for all ranks of the job, and another for each run.
func Open(dir, name string, id space.Identity) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory: %w", err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	name = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, name)
	return &Store{id: id, path: filepath.Join(dir, name+".rendezvous")}, nil
}

// Identity implements space.Space.
func (s *Store) Identity() space.Identity { return s.id }

// Broadcast implements space.Space.
func (s *Store) Broadcast(ctx context.Context, value []byte) ([]byte, error) {
	if s.id.Rank != 0 {
		return s.await(ctx)
	}
	if len(value) == 0 || len(value) > space.MaxValue {
		return nil, fmt.Errorf("a value of %d bytes: 1 to %d can be handed to all ranks", len(value), space.MaxValue)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.publish(value); err != nil {
		return nil, err
	}
	s.made = true
	return value, nil
}

// publish makes the file with all of its content at once, also for readers on other hosts. A file
// of that name is never replaced: it may be that of another job which runs.
func (s *Store) publish(value []byte) error {
	f, err := os.CreateTemp(filepath.Dir(s.path), ".rendezvous-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	sum := sha256.Sum256(value)
	_, err = f.Write(append(sum[:], value...))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), s.path)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: another job of the same name runs, or ended without cleaning up: remove it, or give this run "+
			"a name of its own (TAGMATCH_JOB_ID)", s.path)
	}
	return err
}

// await looks for the file until it is whole.
func (s *Store) await(ctx context.Context) ([]byte, error) {
	const first, last = time.Millisecond, 100 * time.Millisecond
	for wait := first; ; wait = min(2*wait, last) {
		b, err := os.ReadFile(s.path)
		switch {
		case err == nil && len(b) > sha256.Size && len(b) <= sha256.Size+space.MaxValue:
			if sum := sha256.Sum256(b[sha256.Size:]); bytes.Equal(sum[:], b[:sha256.Size]) {
				return b[sha256.Size:], nil
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		if !space.Pause(ctx, wait) {
			return nil, fmt.Errorf("rank 0 has not made %s: is it running, and is that the same directory there? %w", s.path, context.Cause(ctx))
		}
	}
}

// Joined implements space.Space: it removes the file, so that none is left by a job that is killed.
func (s *Store) Joined() { _ = s.Close() }

// Abort implements space.Space. A directory can end nothing.
func (s *Store) Abort(int, string) {}

// Close implements space.Space. Rank 0 removes the file, if it is still there.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		return nil
	}
	s.made = false
	if err := os.Remove(s.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
