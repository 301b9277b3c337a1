package settings

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// driver has the devices that it is given.
type driver struct {
	name    string
	devices []string
	err     error
}

func (d *driver) Name() string               { return d.name }
func (d *driver) Devices() ([]string, error) { return d.devices, d.err }
func (d *driver) EagerLimit(device string) int {
	return map[string]int{"some": 9000, "mlx5_0": 8000}[device]
}
func (d *driver) Open(string, verbs.DriverConfig) (verbs.Device, error) {
	return nil, errors.New("not here")
}

var some = &driver{name: "some"}

func init() { verbs.Register(some) }

func TestDevicesOfDrivers(t *testing.T) {
	defer func() { *some = driver{name: "some"} }()
	const add = `; a device of that name needs import _ "github.com/tagmatch/tagmatch/verbs/ibverbs" in the program`
	require.EqualError(t, Config{Device: "mlx5_0"}.Faults()[0], `Config.Device is "mlx5_0": this build has auto, shm, tcp`+add)
	require.EqualError(t, Config{Device: "shm,ibverbs"}.Faults()[0],
		`Config.Device is "shm,ibverbs": there is no device "ibverbs": this build has auto, shm, tcp`+add)
	require.Equal(t, []verbs.Driver{some}, verbs.Drivers())

	some.devices = []string{"some", "mlx5_0", SHM}
	require.Equal(t, []string{Auto, SHM, TCP, "some", "mlx5_0", SHM}, Devices())
	require.Empty(t, Config{Device: "mlx5_0,tcp"}.Faults())
	require.Equal(t, some, Driver("mlx5_0"))
	require.Nil(t, Driver(SHM), "the software device's names stay its own")
	require.Nil(t, Driver("mlx5_1"))

	for device, limit := range map[string]int{"": 32 << 10, "tcp": 32 << 10, "some": 9000, "some,mlx5_0": 8000, "shm,some": 9000} {
		full, _, faults := Config{Device: device}.Resolve(env(nil))
		require.Empty(t, faults)
		require.Equal(t, limit, full.EagerLimit, device)
	}
	full, _, _ := Config{Device: "some", EagerLimit: -1}.Resolve(env(nil))
	require.Equal(t, -1, full.EagerLimit, "the program gives one")

	*some = driver{name: "ibverbs", err: errors.New("no hardware")}
	require.EqualError(t, Config{Device: "mlx5_0"}.Faults()[0],
		`Config.Device is "mlx5_0": this build has auto, shm, tcp; driver ibverbs has none: no hardware`)
	require.Panics(t, func() { verbs.Register(&driver{name: "ibverbs"}) })
}
