package p2p

import "golang.org/x/sys/unix"

// processors lists those that this rank may use; nil if the kernel does not say.
func processors() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	cpus := make([]int, 0, set.Count())
	for cpu := range maxCPU + 1 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
