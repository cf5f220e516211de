package transient

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const infinity = math.MaxUint64

func one(name string, value any) []assignment { return []assignment{{name, value}} }

// show writes a value as an error has it.
func show(value any) string {
	if s, ok := value.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(value)
}

func not(value any, want string) error { return fmt.Errorf("%s is not %s", show(value), want) }

// scalar returns a value's text, where it is one.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// words returns a list, or the words of a string.
func words(value any) ([]string, bool) {
	switch v := value.(type) {
	case string:
		return strings.Fields(v), true
	case []string:
		return v, true
	case []any:
		list := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := scalar(e)
			if !ok {
				return nil, false
			}
			list = append(list, s)
		}
		return list, true
	}
	return nil, false
}

func truth(value any) (on, ok bool) {
	switch v := value.(type) {
	case bool:
		return v, true
	case string:
		switch v {
		case "yes", "true", "on":
			return true, true
		case "no", "false", "off":
			return false, true
		}
	}
	return false, false
}

func boolean(name string, value any) ([]assignment, error) {
	on, ok := truth(value)
	if !ok {
		return nil, not(value, "true or false")
	}
	return one(name, on), nil
}

func word(allowed ...string) directive {
	return func(name string, value any) ([]assignment, error) {
		s, _ := value.(string)
		if !slices.Contains(allowed, s) {
			return nil, not(value, "one of "+strings.Join(allowed, ", "))
		}
		return one(name, s), nil
	}
}

// switched is a word, or on or off.
func switched(allowed ...string) directive {
	return func(name string, value any) ([]assignment, error) {
		if on, ok := truth(value); ok {
			return one(name, map[bool]string{true: "yes", false: "no"}[on]), nil
		}
		s, _ := value.(string)
		if !slices.Contains(allowed, s) {
			return nil, not(value, "one of true, false, "+strings.Join(allowed, ", "))
		}
		return one(name, s), nil
	}
}

func code(codes map[string]int32) directive {
	return func(name string, value any) ([]assignment, error) {
		s, _ := value.(string)
		n, ok := codes[s]
		if !ok {
			var allowed []string
			for s := range codes {
				allowed = append(allowed, s)
			}
			slices.Sort(allowed)
			return nil, not(value, "one of "+strings.Join(allowed, ", "))
		}
		return one(name, n), nil
	}
}

func integer(least, most int32) directive {
	return func(name string, value any) ([]assignment, error) {
		s, _ := scalar(value)
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || int32(n) < least || int32(n) > most {
			return nil, not(value, fmt.Sprintf("a number from %d to %d", least, most))
		}
		return one(name, int32(n)), nil
	}
}

const sizeWant = "a size in bytes such as 512M or 2GiB"

// sizeOf reads a size. Its units are powers of 1024, as all of systemd's are.
func sizeOf(s string) (uint64, bool) {
	number := strings.TrimRight(s, "BKMGTPEi")
	power, ok := map[string]uint{"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60,
		"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}[s[len(number):]]
	if !ok {
		return 0, false
	}
	if n, err := strconv.ParseUint(number, 10, 64); err == nil {
		return n << power, n<<power>>power == n && n<<power != infinity
	}
	whole, fraction, ok := strings.Cut(number, ".")
	if !ok || power == 0 || !digits(whole) || !digits(fraction) {
		return 0, false
	}
	f, err := strconv.ParseFloat(number, 64)
	f *= math.Pow(2, float64(power))
	return uint64(f), err == nil && f < 1<<63
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func count(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && digits(s) && n != infinity
}

func seconds(s string) (uint64, bool) {
	number := strings.TrimRight(s, "sminhd")
	unit, ok := map[string]uint64{"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}[s[len(number):]]
	n, valid := count(number)
	return n * unit, ok && valid && n <= math.MaxInt64/unit
}

// percent reads "12.5%" as hundredths of a percent.
func percent(s string) (uint64, bool) {
	number, ok := strings.CutSuffix(s, "%")
	whole, fraction, dotted := strings.Cut(number, ".")
	if !ok || !digits(whole) || dotted && (!digits(fraction) || len(fraction) > 2) {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+(fraction + "00")[:2], 10, 40)
	return n, err == nil
}

// scale is how the manager is told a share of what the machine has.
func scale(permyriad uint64) uint32 { return uint32((permyriad*math.MaxUint32 + 5000) / 10000) }

// size is a number of bytes, a share of the memory, or no limit.
func size(unit string) directive {
	return limited(sizeOf, fmt.Sprintf("a size in %s such as 512M or 2GiB, a percentage of the machine's, or infinity", unit))
}

func tasks(name string, value any) ([]assignment, error) {
	return limited(count, "a number above 0, a percentage of the machine's, or infinity")(name, value)
}

func limited(read func(string) (uint64, bool), want string) directive {
	return func(name string, value any) ([]assignment, error) {
		s, _ := scalar(value)
		if s == "infinity" {
			return one(name, uint64(infinity)), nil
		}
		if p, ok := percent(s); ok && p <= 10000 {
			return one(name+"Scale", scale(p)), nil
		}
		n, ok := read(s)
		if !ok || n == 0 && name == "TasksMax" {
			return nil, not(value, want)
		}
		return one(name, n), nil
	}
}

func quota(name string, value any) ([]assignment, error) {
	s, _ := value.(string)
	p, ok := percent(s)
	if !ok || p == 0 {
		return nil, not(value, "a percentage of one CPU such as 50% or 150%")
	}
	return one("CPUQuotaPerSecUSec", p*100), nil
}

// weight is from 1 to 10000. systemd writes 0 for a word.
func weight(zero string) directive {
	want := "a number from 1 to 10000"
	if zero != "" {
		want += ", or " + zero
	}
	return func(name string, value any) ([]assignment, error) {
		s, _ := scalar(value)
		if zero != "" && s == zero {
			return one(name, uint64(0)), nil
		}
		n, ok := count(s)
		if !ok || n < 1 || n > 10000 {
			return nil, not(value, want)
		}
		return one(name, n), nil
	}
}

// rlimit is a limit of getrlimit(2), or a soft and a hard one.
func rlimit(read func(string) (uint64, bool), want string) directive {
	limit := func(s string) (uint64, bool) {
		if s == "infinity" {
			return infinity, true
		}
		return read(s)
	}
	return func(name string, value any) ([]assignment, error) {
		s, _ := scalar(value)
		first, second, both := strings.Cut(s, ":")
		soft, ok := limit(first)
		hard := soft
		if both && ok {
			hard, ok = limit(second)
		}
		if !ok {
			return nil, not(value, want+", infinity, or two of them as soft:hard")
		}
		if soft > hard {
			return nil, fmt.Errorf("%s has a soft limit above the hard one", show(value))
		}
		return []assignment{{name, hard}, {name + "Soft", soft}}, nil
	}
}

// cpus are numbers and ranges of CPUs, as a mask.
func cpus(name string, value any) ([]assignment, error) {
	const want = "CPUs such as 0-3,6"
	var list []string
	if s, ok := scalar(value); ok {
		list = []string{s}
	} else if list, ok = words(value); !ok {
		return nil, not(value, want)
	}
	var mask []byte
	for _, part := range strings.FieldsFunc(strings.Join(list, ","), func(r rune) bool { return r == ',' || r == ' ' }) {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, ok1 := count(first)
		to, ok2 := count(last)
		if !ok1 || !ok2 || from > to || to >= 8192 {
			return nil, not(value, want)
		}
		for i := from; i <= to; i++ {
			if need := int(i/8) + 1; len(mask) < need {
				mask = append(mask, make([]byte, need-len(mask))...)
			}
			mask[i/8] |= 1 << (i % 8)
		}
	}
	if len(mask) == 0 {
		return nil, not(value, want)
	}
	return one(name, mask), nil
}

func slice(name string, value any) ([]assignment, error) {
	s, _ := value.(string)
	base, ok := strings.CutSuffix(s, ".slice")
	if !ok || !plain(base) || base != "-" && (strings.HasPrefix(base, "-") || strings.HasSuffix(base, "-") || strings.Contains(base, "--")) {
		return nil, not(value, "the name of a slice such as batch.slice")
	}
	return one(name, s), nil
}

func plain(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(`-_.:\`, r) {
			return false
		}
	}
	return s != "" && len(s) < 200
}

const pathWant = "an absolute path without . and .. in it"

// absolute reports whether a path is one that the manager takes.
func absolute(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsAny(s, "\x00\n") && (path.Clean(s) == s || path.Clean(s)+"/" == s)
}

func onePath(name string, value any) ([]assignment, error) {
	s, _ := value.(string)
	if !absolute(s) {
		return nil, not(value, pathWant)
	}
	return one(name, s), nil
}

// items are a list, or a string that is its only element: a path may have blanks in it.
func items(value any) ([]string, bool) {
	if s, ok := value.(string); ok {
		return []string{s}, true
	}
	return words(value)
}

func paths(name string, value any) ([]assignment, error) {
	list, ok := items(value)
	if !ok || len(list) == 0 {
		return nil, not(value, "a path, or a list of them")
	}
	for _, s := range list {
		if !absolute(strings.TrimPrefix(strings.TrimPrefix(s, "-"), "+")) {
			return nil, not(s, pathWant+" (with - in front where it may be missing, + where it is below RootDirectory)")
		}
	}
	return one(name, list), nil
}

type bind struct {
	From, To string
	Optional bool
	Flags    uint64
}

const recursive = 0x4000 // MS_REC of mount(2)

func binds(name string, value any) ([]assignment, error) {
	const want = "FROM, FROM:TO or FROM:TO:norbind, of absolute paths, with - in front where FROM may be missing"
	list, ok := items(value)
	if !ok || len(list) == 0 {
		return nil, not(value, want)
	}
	var all []bind
	for _, s := range list {
		rest, optional := strings.CutPrefix(s, "-")
		f := strings.Split(rest, ":")
		b := bind{f[0], f[0], optional, recursive}
		if len(f) > 1 {
			b.To = f[1]
		}
		if len(f) > 2 && f[2] == "norbind" {
			b.Flags = 0
		} else if len(f) > 2 && f[2] != "rbind" || len(f) > 3 {
			return nil, not(s, want)
		}
		if !absolute(b.From) || !absolute(b.To) {
			return nil, not(s, want)
		}
		all = append(all, b)
	}
	return one(name, all), nil
}

type pair struct{ First, Second string }

func tmpfs(name string, value any) ([]assignment, error) {
	const want = "PATH or PATH:OPTIONS, such as /var/tmp:size=100M"
	list, ok := items(value)
	if !ok || len(list) == 0 {
		return nil, not(value, want)
	}
	var all []pair
	for _, s := range list {
		at, options, _ := strings.Cut(s, ":")
		if !absolute(at) {
			return nil, not(s, want)
		}
		all = append(all, pair{at, options})
	}
	return one(name, all), nil
}

func devices(name string, value any) ([]assignment, error) {
	const want = "a device, and some of rwm, such as /dev/kvm rw"
	list, ok := items(value)
	if !ok || len(list) == 0 {
		return nil, not(value, want)
	}
	var all []pair
	for _, s := range list {
		f := strings.Fields(s)
		if len(f) == 1 {
			f = append(f, "rwm")
		}
		if len(f) != 2 || strings.Trim(f[1], "rwm") != "" || !strings.HasPrefix(f[0], "/dev/") && !strings.HasPrefix(f[0], "char-") && !strings.HasPrefix(f[0], "block-") {
			return nil, not(s, want)
		}
		all = append(all, pair{f[0], f[1]})
	}
	return one(name, all), nil
}

// below are directories that systemd makes, below /var/lib and the like.
func below(name string, value any) ([]assignment, error) {
	list, ok := words(value)
	if !ok || len(list) == 0 {
		return nil, not(value, "a directory's name, or a list of them")
	}
	for _, s := range list {
		if s == "" || s == "." || path.IsAbs(s) || path.Clean(s) != s || strings.HasPrefix(s, "../") || s == ".." || s == "private" || strings.HasPrefix(s, "private/") || strings.Contains(s, ":") {
			return nil, not(s, "a relative path without . and .. in it, and not private")
		}
	}
	return one(name, list), nil
}

func credentials(name string, value any) ([]assignment, error) {
	const want = "NAME:PATH, of a credential and the file it comes from"
	list, ok := items(value)
	if !ok || len(list) == 0 {
		return nil, not(value, want)
	}
	var all []pair
	for _, s := range list {
		id, from, ok := strings.Cut(s, ":")
		if !ok || !fileName(id) || !absolute(from) && !fileName(from) {
			return nil, not(s, want)
		}
		all = append(all, pair{id, from})
	}
	return one(name, all), nil
}

func fileName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) < 256 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r >= 0x7f }) < 0
}

// inverted returns the words of a list whose first may begin with ~, which is of the whole.
func inverted(value any) (list []string, invert, ok bool) {
	list, ok = words(value)
	if !ok || len(list) == 0 {
		return nil, false, ok
	}
	list = slices.Clone(list)
	list[0], invert = strings.CutPrefix(list[0], "~")
	if list[0] == "" {
		list = list[1:]
	}
	return list, invert, true
}

// The capabilities, by their numbers: see capabilities(7).
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE " +
	"NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE " +
	"SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL " +
	"SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"

func capabilities(name string, value any) ([]assignment, error) {
	list, invert, ok := inverted(value)
	if !ok {
		return nil, not(value, "capabilities such as CAP_NET_BIND_SERVICE, or none")
	}
	known := strings.Fields(capabilityNames)
	var mask uint64
	for _, s := range list {
		n, _ := strings.CutPrefix(s, "CAP_")
		i := slices.Index(known, n)
		if i < 0 || n == s {
			return nil, not(s, "a capability such as CAP_NET_BIND_SERVICE")
		}
		mask |= 1 << i
	}
	if invert {
		mask = ^mask & (1<<len(known) - 1)
	}
	return one(name, mask), nil
}

func namespaces(name string, value any) ([]assignment, error) {
	flags := map[string]uint64{"cgroup": 0x02000000, "ipc": 0x08000000, "net": 0x40000000, "mnt": 0x00020000,
		"pid": 0x20000000, "user": 0x10000000, "uts": 0x04000000} // of clone(2)
	var all uint64
	for _, f := range flags {
		all |= f
	}
	if on, ok := truth(value); ok {
		return one(name, map[bool]uint64{true: 0, false: all}[on]), nil
	}
	const want = "true, false, or some of cgroup, ipc, mnt, net, pid, user, uts"
	list, invert, ok := inverted(value)
	if !ok || len(list) == 0 {
		return nil, not(value, want)
	}
	var mask uint64
	for _, s := range list {
		if flags[s] == 0 {
			return nil, not(s, want)
		}
		mask |= flags[s]
	}
	if invert {
		mask = all &^ mask
	}
	return one(name, mask), nil
}

var (
	familyName = regexp.MustCompile(`^AF_[A-Z0-9]+$`)
	callName   = regexp.MustCompile(`^@?[a-z0-9_-]+$`)
	archName   = regexp.MustCompile(`^[a-z0-9-]+$`)
	groupName  = regexp.MustCompile(`^([a-z_][A-Za-z0-9_.-]*|[0-9]+)$`)
)

type list struct {
	Allow bool
	Names []string
}

// filter is a list of what is allowed, or, behind ~, of what is not.
func filter(valid *regexp.Regexp, what string) directive {
	return func(name string, value any) ([]assignment, error) {
		l, invert, ok := inverted(value)
		if !ok || len(l) == 0 {
			return nil, not(value, "a list of "+what)
		}
		for _, s := range l {
			if !valid.MatchString(s) {
				return nil, not(s, "one of "+what)
			}
		}
		return one(name, list{!invert, l}), nil
	}
}

func names(valid *regexp.Regexp, what string) directive {
	return func(name string, value any) ([]assignment, error) {
		l, ok := words(value)
		if !ok || len(l) == 0 {
			return nil, not(value, "a list of "+what)
		}
		for _, s := range l {
			if !valid.MatchString(s) {
				return nil, not(s, "one of "+what)
			}
		}
		return one(name, l), nil
	}
}

// errorNumber is Linux's, on every platform.
func errorNumber(name string, value any) ([]assignment, error) {
	s, _ := scalar(value)
	n, ok := map[string]int32{"EPERM": 1, "ENOENT": 2, "EIO": 5, "ENXIO": 6, "EAGAIN": 11, "ENOMEM": 12, "EACCES": 13, "EBUSY": 16,
		"ENODEV": 19, "EINVAL": 22, "ENOSYS": 38, "EOPNOTSUPP": 95, "ENOTSUP": 95, "EUCLEAN": 117,
		"kill": math.MaxInt32 - 1}[s] // systemd's own number
	if !ok {
		u, valid := count(s)
		if !valid || u < 1 || u > 4095 {
			return nil, not(value, "an error such as EPERM, a number from 1 to 4095, or kill")
		}
		n = int32(u)
	}
	return one(name, n), nil
}

type network struct {
	Family  int32
	Address []byte
	Bits    uint32
}

func addresses(name string, value any) ([]assignment, error) {
	const want = "any, localhost, link-local, multicast, an address, or a network such as 10.0.0.0/8"
	l, ok := words(value)
	if !ok || len(l) == 0 {
		return nil, not(value, want)
	}
	var all []network
	for _, s := range l {
		known, ok := map[string][]string{
			"any": {"0.0.0.0/0", "::/0"}, "localhost": {"127.0.0.0/8", "::1/128"},
			"link-local": {"169.254.0.0/16", "fe80::/64"}, "multicast": {"224.0.0.0/4", "ff00::/8"},
		}[s]
		if !ok {
			known = []string{s}
		}
		for _, k := range known {
			n, err := parseNetwork(k)
			if err != nil {
				return nil, not(s, want)
			}
			all = append(all, n)
		}
	}
	return one(name, all), nil
}

func parseNetwork(s string) (network, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return network{}, errors.New("not an address")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	n := network{Family: 10, Address: p.Addr().AsSlice(), Bits: uint32(p.Bits())} // AF_INET6
	if p.Addr().Is4() {
		n.Family = 2 // AF_INET
	}
	return n, nil
}
