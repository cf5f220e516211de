// Package monitor looks at sources and says what changed.
//
// It keeps nothing that counts: the committed observation comes in, the next one goes out, and the
// caller commits it only after the handler succeeded. What a source remembers of the files it read
// saves reading them again, and may be lost at any time. A path is present, absent or
// unknown; unknown keeps the old observation and never reads as removed (design §8).
package monitor
