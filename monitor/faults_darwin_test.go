package monitor

func (f *faults) deviceOf(name string) int32 { return int32(f.device[name]) }
