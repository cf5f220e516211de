// Package strict reads what people wrote for us (YAML, durations, names) and says exactly where it is wrong.
//
// What always holds: every problem is a [Diagnostic] with the place of the value it is about; nothing is guessed,
// folded or ignored. YAML is read by the core schema of YAML 1.2, narrowed to what every reader takes alike: dates
// are strings, and octal numbers, leading zeros, underscores in numbers, merge keys, custom tags, repeated keys and
// further documents are errors. It is also the only package that imports the YAML library.
package strict
