package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("plot", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(stderr, "usage: plot [-out DIR] FILE...\n\nFILE has what bench compare, limits, lat, bw or depth printed with -json; - is the standard input.\n\nFlags:\n")
		fs.PrintDefaults()
	}
	out := fs.String("out", ".", "`directory` for the pictures")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if fs.NArg() == 0 {
		fs.Usage()
		return 2
	}
	if err := pictures(fs.Args(), *out, stdout); err != nil {
		fmt.Fprintf(stderr, "plot: %v\n", err)
		return 1
	}
	return 0
}

// pictures reads the files and writes a picture of each chart.
func pictures(files []string, dir string, stdout io.Writer) error {
	c := charts{}
	for _, name := range files {
		if err := readFile(c, name); err != nil {
			return err
		}
	}
	if len(c) == 0 {
		return errors.New("there is nothing to draw in these files")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, one := range c.sorted() {
		for _, kind := range []string{"svg", "png"} {
			name := filepath.Join(dir, one.name+"."+kind)
			if err := one.save(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintln(stdout, name)
		}
	}
	return nil
}

func readFile(c charts, name string) error {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // nothing was written
		in = f
	}
	if err := c.read(in); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
