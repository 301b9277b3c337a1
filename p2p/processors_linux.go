package p2p

import "golang.org/x/sys/unix"

// processors are those allowed to this process.
func processors() (s cpuSet) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for cpu := 0; set.Count() > 0; cpu++ {
		if cpu%8 == 0 {
			s = append(s, 0)
		}
		if set.IsSet(cpu) {
			s[cpu/8] |= 1 << (cpu % 8)
			set.Clear(cpu)
		}
	}
	return s
}
