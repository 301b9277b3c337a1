package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// example is a whole command line, for who has left a part of it out.
const example = "tagmatch run -n 4 ./program"

// whatToRun checks that a command line of run has all its parts.
func whatToRun(c *cobra.Command, args []string) error {
	counted := c.Flags().Changed("ranks")
	switch {
	case counted && len(args) > 0:
		return nil
	case counted:
		return fmt.Errorf("the program is missing: type tagmatch run -n %s ./program", c.Flag("ranks").Value)
	case len(args) == 0:
		return fmt.Errorf("the number of ranks and the program are missing: type %s", example)
	}
	n, program := "4", args[0]
	if _, err := strconv.Atoi(program); err == nil && len(args) > 1 {
		n, program = args[0], args[1]
	}
	return fmt.Errorf("the number of ranks is missing in front of the program: type tagmatch run -n %s %s", n, program)
}

// noArguments and oneJob check what commands get that take nothing, or the name of a job.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments: leave out %s", c.CommandPath(), strings.Join(args, " "))
}

func oneJob(c *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return fmt.Errorf("%s takes one job: leave out %s", c.CommandPath(), strings.Join(args[1:], " "))
}

// spelling is an error about what was typed that says it all.
type spelling string

func (s spelling) Error() string { return string(s) }

// inPlainWords names a flag that could not be parsed as it was typed, and says what to type.
func inPlainWords(c *cobra.Command, err error) error {
	if s, ok := errors.AsType[spelling](err); ok {
		return s
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return fmt.Errorf("%s has no flag %s: %s -h lists those that it has", c.CommandPath(), typed(e), c.CommandPath())
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("%s: its value is missing: %s", typed(e), e.GetFlag().Usage)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		name := "--" + e.GetFlag().Name
		example := name
		if e.GetFlag().NoOptDefVal == "" {
			example += " " + e.GetFlag().DefValue
		}
		return fmt.Errorf("%s %s: it cannot be that: type for example %s", name, e.GetValue(), example)
	}
	return err
}

// typed is a flag as it was typed: by its name, or by a letter.
func typed(e interface {
	GetSpecifiedName() string
	GetSpecifiedShortnames() string
}) string {
	if e.GetSpecifiedShortnames() != "" {
		return "-" + e.GetSpecifiedName()
	}
	return "--" + e.GetSpecifiedName()
}

// rankCount is the value of -n.
type rankCount int

func (*rankCount) Type() string     { return "N" }
func (n *rankCount) String() string { return strconv.Itoa(int(*n)) }

func (n *rankCount) Set(s string) error {
	if p, ok := strings.CutPrefix(s, "p"); ok && strings.Trim(p, "=0123456789") == "" { // -np, which is -n p
		return wrongName{}.Set(s)
	}
	v, err := strconv.Atoi(s)
	if err != nil {
		return spelling(fmt.Sprintf("-n %s: give the number of ranks: type %s", s, example))
	}
	*n = rankCount(v)
	return nil
}

// wrongName is the flag of other launchers that is called -n here.
type wrongName struct{}

func (wrongName) Type() string     { return "N" }
func (wrongName) String() string   { return "" }
func (wrongName) Set(string) error { return spelling("-np is -n here: type " + example) }
