package bootstrap

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// TestChooseAddresses: which addresses of a host are for others, without and with TAGMATCH_NETDEV.
func TestChooseAddresses(t *testing.T) {
	host := []nic{
		{"lo", true, prefixes("127.0.0.1/8", "::1/128")},
		{"eth0", true, prefixes("fe80::1/64", "fd77::1/64", "10.0.0.1/24")},
		{"docker0", true, prefixes("172.17.0.1/16")},
		{"eth1", false, prefixes("10.1.0.1/24")},
		{"ib0", true, prefixes("10.2.0.1/16", "10.3.0.1/16")},
	}
	for netdev, want := range map[string][]string{
		"":                     {"10.0.0.1", "10.2.0.1", "10.3.0.1", "fd77::1"},
		"ib0":                  {"10.2.0.1", "10.3.0.1"},
		"eth0":                 {"fd77::1", "10.0.0.1"},
		"10.3.0.0/16":          {"10.3.0.1"},
		"10.3.0.1, eth0":       {"10.3.0.1", "fd77::1", "10.0.0.1"},
		"fd77::/32,172.17.0.1": {"fd77::1", "172.17.0.1"},
		"docker0":              {"172.17.0.1"},
		"lo":                   {"127.0.0.1", "::1"},
	} {
		got, err := chooseAddresses(host, netdev)
		require.NoError(t, err, netdev)
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		require.Equal(t, want, texts, netdev)
	}
	for _, netdev := range []string{"eth1", "eth2", "10.1.0.0/16", "ib0,", "ib0,10.9.0.1", "10.0.0.300"} {
		_, err := chooseAddresses(host, netdev)
		require.ErrorIs(t, err, ErrConfig, netdev)
		require.ErrorContains(t, err, `TAGMATCH_NETDEV is "`+netdev+`": no interface of this host that is up has the name, address or prefix `)
	}
	alone, err := chooseAddresses(host[:1], "")
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{rendezvous.Loopback}, alone)
}

// TestNetdevOfNoInterface: under every launcher a rank says that TAGMATCH_NETDEV names nothing.
func TestNetdevOfNoInterface(t *testing.T) {
	for _, v := range []vars{{}, envOf(0, 2, "29999"), envOf(1, 2, "29999")} {
		_, err := Detect(t.Context(), options(v.with(EnvNetdev, "nope0")))
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, `has the name, address or prefix "nope0"`)
	}
}
