// Package house holds the tests of the house's own rules: which package may import which, which calls are made
// where, and that what the documentation shows is true. It has no code of its own.
package house
