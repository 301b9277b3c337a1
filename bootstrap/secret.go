package bootstrap

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/secure"
)

// jobSecret is the secret, empty if none was given, and its origin for error texts.
type jobSecret struct {
	bytes   []byte
	origin  string
	exposed bool // others than the ranks may have read it
}

// handedOut is the origin of a secret that the rendezvous made.
const handedOut = "made by rank 0, handed out over the rendezvous"

func madeSecret(origin string) jobSecret {
	b := make([]byte, SecretSize)
	rand.Read(b) // never fails
	return jobSecret{b, origin, origin == handedOut}
}

func resolveSecret(opt *Options) (jobSecret, error) {
	if opt.Secret != nil {
		if len(opt.Secret) != SecretSize {
			return jobSecret{}, configErrorf("Options.Secret has %d bytes: give %d random ones", len(opt.Secret), SecretSize)
		}
		return jobSecret{bytes: slices.Clone(opt.Secret), origin: "given by the program"}, nil
	}
	if s := opt.Getenv(EnvSecret); s != "" {
		b, ok := decodeSecret(s)
		if !ok {
			return jobSecret{}, configErrorf("%s must be %d hexadecimal digits (it has %d characters): make one with `openssl rand -hex %d`",
				EnvSecret, 2*SecretSize, len(s), SecretSize)
		}
		return jobSecret{bytes: b, origin: EnvSecret}, nil
	}
	if name := opt.Getenv(EnvSecretFile); name != "" {
		b, err := readSecretFile(opt, name)
		return jobSecret{bytes: b, origin: EnvSecretFile + " " + name}, err
	}
	return jobSecret{}, nil
}

// taken is the secret that Detect has taken out of this process's environment; nil: none. Later
// calls of Detect find it here.
var taken atomic.Pointer[string]

// getenv is os.Getenv, with that secret.
func getenv(name string) string {
	s := os.Getenv(name)
	if t := taken.Load(); s == "" && t != nil && name == EnvSecret {
		return *t
	}
	return s
}

// hideSecret takes the secret out of the environment, so that no program that this process starts
// gets it.
func (o *Options) hideSecret() error {
	s := o.Getenv(EnvSecret)
	if s == "" {
		return nil
	}
	if os.Getenv(EnvSecret) == s {
		taken.Store(&s)
	}
	if err := o.Unsetenv(EnvSecret); err != nil {
		return configErrorf("%s cannot be unset: %v", EnvSecret, err)
	}
	return nil
}

// checkRequired is an error if RequireSecret or TLS is set and a job of several ranks has no
// secret.
func (s jobSecret) checkRequired(opt *Options) error {
	required, err := opt.requireSecret()
	tls, err1 := opt.tls()
	switch err = errors.Join(err, err1); {
	case err != nil || s.bytes != nil:
		return err
	case tls.Kind() != secure.Off:
		return configErrorf("no job secret, and %s needs one that only the ranks know: set %s or %s for all ranks, start with `tagmatch run`, or set %s=%s",
			EnvTLS, EnvSecret, EnvSecretFile, EnvTLS, secure.Off)
	case !required:
		return nil
	}
	return configErrorf("no job secret, and %s refuses to start without one: set %s or %s for all ranks, or start with `tagmatch run`",
		EnvRequireSecret, EnvSecret, EnvSecretFile)
}

func (o *Options) requireSecret() (bool, error) {
	s := o.Getenv(EnvRequireSecret)
	if o.RequireSecret || s == "" {
		return o.RequireSecret, nil
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, configErrorf("%s is %q: give 1 or 0", EnvRequireSecret, s)
	}
	return v, nil
}

// decodeSecret reads a secret's hexadecimal digits; ok is false for all else.
func decodeSecret(s string) (b []byte, ok bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && len(b) == SecretSize
}

// warnIfOpen warns of a file that others than its user and group can use.
func (o *Options) warnIfOpen(what, name string) {
	if st, err := os.Stat(name); err == nil && st.Mode().Perm()&0o007 != 0 {
		o.Logger.Warn("the file with "+what+" is open to everybody on this host", "file", name, "mode", st.Mode().Perm())
	}
}

// readSecretFile reads 64 hexadecimal digits or 32 raw bytes. A file readable by others only causes
// a warning: Kubernetes mounts secrets so.
func readSecretFile(opt *Options, name string) ([]byte, error) {
	if _, ok := decodeSecret(name); ok { // not to be shown
		return nil, configErrorf("%s seems to have the secret itself: give the name of a file, or set %s", EnvSecretFile, EnvSecret)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, configErrorf("%s: %v", EnvSecretFile, err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, 4*SecretSize))
	if err != nil {
		return nil, configErrorf("%s: %v", EnvSecretFile, err)
	}
	opt.warnIfOpen("the job secret", name)
	if len(raw) == SecretSize {
		return raw, nil
	}
	b, ok := decodeSecret(string(bytes.TrimSpace(raw)))
	if !ok {
		return nil, configErrorf("%s %s must hold %d hexadecimal digits or %d bytes", EnvSecretFile, name, 2*SecretSize, SecretSize)
	}
	return b, nil
}
