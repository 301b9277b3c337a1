package bootstrap

import (
	"cmp"

	"github.com/tagmatch/tagmatch/internal/secure"
)

// tls is the setting in effect.
func (o *Options) tls() (secure.Setting, error) {
	text := cmp.Or(o.TLS, o.Getenv(EnvTLS))
	s, err := secure.Parse(text)
	if err != nil {
		return s, configErrorf("%s is %q: %v", EnvTLS, text, err)
	}
	return s, nil
}

// loadTLS makes the layer of connections.
func (o *Options) loadTLS() error {
	s, err := o.tls()
	if err != nil {
		return err
	}
	if o.cfg.TLS, err = s.Load(); err != nil {
		return configErrorf("%s: %v", EnvTLS, err)
	}
	if s.Kind() == secure.Files {
		o.warnIfOpen("the private key", s.KeyFile())
	}
	return nil
}
