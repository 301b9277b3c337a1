package bootstrap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// resolveSecret returns the secret that the job was given; without Bytes it was given none.
func resolveSecret(opt *Options) (rendezvous.Secret, error) {
	if opt.Secret != nil {
		if len(opt.Secret) != SecretSize {
			return rendezvous.Secret{}, configErrorf("Options.Secret has %d bytes: give %d random ones", len(opt.Secret), SecretSize)
		}
		return rendezvous.Secret{Bytes: slices.Clone(opt.Secret), Origin: "given by the program"}, nil
	}
	if s := opt.Getenv(EnvSecret); s != "" {
		b, ok := decodeSecret(s)
		if !ok {
			return rendezvous.Secret{}, configErrorf("%s must be %d hexadecimal digits (it has %d characters): make one with `openssl rand -hex %d`",
				EnvSecret, 2*SecretSize, len(s), SecretSize)
		}
		return rendezvous.Secret{Bytes: b, Origin: EnvSecret}, nil
	}
	if name := opt.Getenv(EnvSecretFile); name != "" {
		b, err := readSecretFile(opt, name)
		return rendezvous.Secret{Bytes: b, Origin: EnvSecretFile + " " + name}, err
	}
	return rendezvous.Secret{}, nil
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
func (o *Options) checkRequired(s rendezvous.Secret) error {
	required, err := o.requireSecret()
	tls, err1 := o.tls()
	switch err = errors.Join(err, err1); {
	case err != nil || s.Bytes != nil:
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
