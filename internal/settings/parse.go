package settings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/keepalive"
)

func showAsync(c *Config) string {
	switch {
	case c.Async != AsyncAuto:
		return asyncNames[c.Async]
	case c.AutoAsync():
		return "auto (on)"
	}
	return "auto (off)"
}

// parseName finds the value of a name.
func parseName[M comparable](value *M, names map[M]string, s, allowed string) error {
	for m, name := range names {
		if s == name {
			*value = m
			return nil
		}
	}
	return errors.New(allowed)
}

func showJoin(d time.Duration) string {
	if d < 0 {
		return "none"
	}
	return d.String()
}

func parsePeer(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < keepalive.Min || d > maxPeer {
		return 0, errors.New(strings.Replace(allowedPeer, "give", "give a duration such as 30s,", 1))
	}
	return d, nil
}

// parseLog makes a Logger to the standard error output. Where that of many ranks comes together,
// each record says whose it is.
func parseLog(c *Config, s string) error {
	var level slog.Level
	if err := parseName(&level, logLevels, s, "give warn, info or debug"); err != nil {
		return err
	}
	host, _ := os.Hostname()
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("host", host, "pid", os.Getpid())
	return nil
}

func showLog(c *Config) string {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if c.Logger != nil && c.Logger.Enabled(context.Background(), level) {
			return logLevels[level]
		}
	}
	return "none"
}

func parseSpin(s string) (time.Duration, error) {
	if s == "-1" || s == "none" {
		return -1, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxSpin {
		return 0, errors.New(strings.Replace(allowedSpin, "give", "give a duration such as 20us,", 1))
	}
	return d, nil
}

func showSpin(d time.Duration) string {
	switch {
	case d < 0:
		return "none"
	case d == 0:
		return fmt.Sprintf("adaptive, at most %v", defaultSpin)
	}
	return d.String()
}

// parseBytes reads "none", -1, or a number with an optional k, m or g (powers of 1024).
func parseBytes(s string, most int64, allowed string) (int64, error) {
	if s == "none" {
		return -1, nil
	}
	digits, shift := s, 0
	if i := strings.IndexByte("kmg", s[len(s)-1]|0x20); i >= 0 {
		digits, shift = s[:len(s)-1], 10*(i+1)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < -1 || n > most>>shift || n < 0 && shift > 0 {
		return 0, errors.New(allowed)
	}
	return n << shift, nil
}

// ParseWatchdog reads for how long nothing of a job may move before that is reported, and whether
// the job is ended then: "5m", "5m,abort". It is 0 of "" and "off".
func ParseWatchdog(s string) (limit time.Duration, abort bool, err error) {
	if s == "" || s == "off" {
		return 0, false, nil
	}
	s, abort = strings.CutSuffix(s, ",abort")
	limit, err = time.ParseDuration(s)
	if err != nil || limit < minWatchdog {
		return 0, false, fmt.Errorf("give a duration of at least %v, such as 5m, with ,abort behind it where the job is to be ended; or off", minWatchdog)
	}
	return limit, abort, nil
}

// ParseTrace reads whether a rank records what it does from its beginning, and into files of which
// directory: "ring", "ring:DIR"; "" is that for temporary files. "" and "off" are no.
func ParseTrace(s string) (dir string, on bool, err error) {
	if s == "" || s == "off" {
		return "", false, nil
	}
	rest, ok := strings.CutPrefix(s, "ring")
	dir, given := strings.CutPrefix(rest, ":")
	if !ok || rest != "" && (!given || dir == "") {
		return "", false, errors.New("give ring, ring:DIR with the directory of the files, or off")
	}
	return dir, true, nil
}
