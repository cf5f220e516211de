package catalog

import (
	"sync"

	"marbles/monitor"
)

// Shared is what the sources of several loads have in common, so that a reload keeps it: the connections to
// servers and how many requests run at each, and the scans of one workspace. The zero value is ready. It is safe for concurrent use.
type Shared struct {
	hosts monitor.HostLimit

	mu    sync.Mutex // guards files
	files map[string]*monitor.Shared
}

// filesOf is what the files sources of one workspace share.
func (s *Shared) filesOf(workspace string) *monitor.Shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := s.files[workspace]
	if files == nil {
		if s.files == nil {
			s.files = make(map[string]*monitor.Shared)
		}
		files = monitor.NewShared()
		s.files[workspace] = files
	}
	return files
}
