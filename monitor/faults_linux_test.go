package monitor

func (f *faults) deviceOf(name string) uint64 { return f.device[name] }
