package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/mutations"
)

// load returns all mutations, each of which must fit the source text.
func load(root string) ([]job, error) {
	all, err := mutations.Load(filepath.Join(root, mutations.Dir))
	if err != nil {
		return nil, err
	}
	tree := mutations.NewTree(root)
	var jobs []job
	var errs []error
	for _, m := range all {
		texts, err := tree.Plant(m)
		jobs, errs = append(jobs, job{m, m.Catch, texts}), append(errs, err)
	}
	return jobs, errors.Join(errs...)
}

// named returns the jobs whose names begin as one of names.
func named(names []string, jobs []job) (chosen []job, err error) {
	used := map[string]bool{}
	for _, j := range jobs {
		i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(j.m.Name, name) })
		if i >= 0 {
			used[names[i]] = true
			chosen = append(chosen, j)
		}
	}
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("no bug's name begins so: %s", name)
		}
	}
	return chosen, nil
}

// touched returns what may have changed since the branch left commit: the mutations of the packages
// that were touched, and the commands of others whose own package was touched.
func touched(ctx context.Context, root, commit string, jobs []job) (chosen []job, err error) {
	git := func(args ...string) (lines []string) {
		if err != nil {
			return nil
		}
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("%v: %w: %s", cmd, err, strings.TrimSpace(errs.String()))
		}
		return strings.FieldsFunc(out.String(), func(c rune) bool { return c == '\n' })
	}
	base := strings.Join(git("merge-base", commit, "HEAD"), "")
	files := append(git("diff", "--name-only", "--no-renames", "--relative", base), git("ls-files", "-o", "--exclude-standard")...)
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for _, f := range files {
		dir, _, _ := strings.Cut(path.Dir(f), "/testdata")
		dirs[dir] = true
	}
	for _, j := range jobs {
		code := slices.Contains(files, path.Join(mutations.Dir, j.m.Name+".txt")) ||
			slices.ContainsFunc(j.m.Dirs(), func(dir string) bool { return dirs[dir] })
		if !code {
			j.commands = slices.DeleteFunc(slices.Clone(j.commands), func(c mutations.Command) bool { return !dirs[c.Dir] })
		}
		if len(j.commands) != 0 {
			chosen = append(chosen, j)
		}
	}
	return chosen, nil
}
