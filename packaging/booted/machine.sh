#!/usr/bin/env bash
# A throw-away machine for tests: a small Debian whose PID 1 is a real systemd, in namespaces, on an overlay in memory and
# in a cgroup of its own. What it does is gone with it, and it sees nothing of this machine but its kernel.
#
#   machine.sh prepare [SUITE...]   build the root file systems that the cache does not have (it needs mmdebstrap)
#   machine.sh root SUITE           print where a suite's root is; an error where it was not built
#   machine.sh boot SUITE           boot; prints the pid of its PID 1, and powers it off when standard input ends
#
# It is run as root. Files are put into a booted machine below /proc/<pid>/root, commands enter it by nsenter(1).
#
# The one danger is a systemd that starts on this machine's own /: it would empty /tmp and start services. So the old root
# is left by pivot_root(2), which cannot half succeed as a move and a chroot can, and `init` below starts nothing unless /
# is the overlay that this run has marked and the old root is out of sight.
set -Eeuo pipefail
umask 022

self=$(readlink -f -- "${BASH_SOURCE[0]}")
readonly self
readonly suites=(bookworm trixie) # systemd 252 and 257
readonly packages=systemd,systemd-sysv,dbus,passwd,mount,procps
readonly cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/marbles-booted
readonly stop_seconds=20

die() { printf 'machine.sh: %s\n' "$*" >&2; exit 1; }

# root_of SUITE is where its root is in the cache. What it is made of is part of its name.
root_of() { printf '%s/%s-%s\n' "$cache" "$1" "$(sha256sum <<<"$packages $(declare -f build)" | cut -c 1-12)"; }

# ---------------------------------------------------------------------------------------------------------- prepare

prepare() {
  local suite root
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock 9 # another prepare may be at it
  for suite in "$@"; do
    root=$(root_of "$suite")
    [ ! -d "$root" ] || continue
    command -v mmdebstrap >/dev/null || die 'mmdebstrap is not installed'
    rm -rf --one-file-system -- "$cache/$suite"-* "$cache/.new"
    mkdir "$cache/.new" "$cache/.new/build" "$cache/.new/root"
    unshare --mount --propagation private -- "$self" build "$suite" "$cache/.new" || die "cannot build $suite"
    mv -T "$cache/.new/root" "$root"
    rm -rf --one-file-system -- "$cache/.new"
  done
}

# build SUITE DIR makes DIR/root, in a mount namespace of its own: in memory dpkg's many fsyncs cost nothing.
build() {
  local suite=$1 dir=$2 mirror
  # shellcheck disable=SC2016 # the format is apt's
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | sed -n 1p)
  [ -n "$mirror" ] || die 'apt has no source of Debian here: apt-get update'
  mount -t tmpfs -o mode=0755 booted "$dir/build"
  mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" --aptopt='Acquire::Retries "3"' \
    --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io "$suite" "$dir/build/root" "deb $mirror $suite main" >&2
  rm -rf "$dir/build/root"/usr/share/{doc,man,locale,info}/*
  cp -a --one-file-system -T "$dir/build/root" "$dir/root"
}

# ------------------------------------------------------------------------------------------------------------- boot

# boot SUITE starts PID 1 and waits: for the end of standard input, then for the machine's.
boot() {
  local root mount parent pid i
  root=$(find_root "$1")
  mount=$(findmnt -n -t cgroup2 -o TARGET | sed -n 1p)
  [ -n "$mount" ] || die 'no cgroup2 file system is mounted'
  parent=$mount$(sed -n 's/^0:://p' /proc/self/cgroup)
  sweep "$parent"
  # A child of the cgroup that this is in, never that one itself: systemd moves every process of its own into init.scope.
  cgroup=${parent%/}/marbles-booted.$$
  dir=$(mktemp -d "/tmp/marbles-booted.$$.XXXXXX")
  trap clean EXIT
  mkdir "$cgroup" "$dir/mount"
  # Should this script be killed, unshare(1) dies of it and takes its child along, and with PID 1 all of the machine goes.
  setpriv --pdeathsig KILL unshare --mount --propagation private --uts --ipc --net --pid --fork --kill-child=KILL -- \
    "$self" enter "$root" "$dir" "$cgroup" </dev/null >&2 &
  job=$!
  for ((i = 0; i < 200; i++)); do # until it has become systemd
    pid=$(cat "/proc/$job/task/$job/children" 2>/dev/null) || die 'it ended while booting'
    pid=${pid%% *}
    [ -z "$pid" ] || [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != systemd ] || break
    sleep 0.05
  done
  printf '%s\n' "$pid"
  exec >&-
  cat >/dev/null # until nobody needs it any more
  kill -s RTMIN+4 "$pid" 2>/dev/null || : # power off, to systemd
  for ((i = 0; i < stop_seconds * 20; i++)); do
    kill -0 "$job" 2>/dev/null || return 0
    sleep 0.05
  done
  die "no clean shutdown in $stop_seconds s"
}

find_root() {
  local root
  root=$(root_of "$1")
  [ -d "$root" ] || die "no root for $1; build it: $self prepare $1"
  printf '%s\n' "$root"
}

job='' cgroup='' dir=''
clean() {
  [ -z "$job" ] || { kill -KILL "$job" 2>/dev/null || :; wait "$job" 2>/dev/null || :; }
  remove_cgroup "$cgroup"
  rm -rf --one-file-system -- "$dir"
}

# A cgroup can be removed once its processes are gone, which takes a moment after the last of them was killed.
remove_cgroup() {
  local i
  for ((i = 0; i < 40; i++)); do
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || :
    [ -d "$1" ] || return 0
    sleep 0.05
  done
}

# sweep removes what runs left that were killed: an empty cgroup, an empty folder.
sweep() {
  local left pid
  for left in "${1%/}"/marbles-booted.* /tmp/marbles-booted.*; do
    pid=${left##*/marbles-booted.} pid=${pid%%.*}
    if [ ! -d "$left" ] || [[ ! $pid =~ ^[0-9]+$ ]] || [ -d "/proc/$pid" ]; then continue; fi
    case $left in
      /tmp/*) rm -rf --one-file-system -- "$left" ;;
      *) find "$left" -depth -type d -exec rmdir {} + 2>/dev/null || : ;;
    esac
  done
}

# enter ROOT DIR CGROUP is PID 1, in the new namespaces but for that of cgroups, whose root is the cgroup it is made in.
enter() {
  echo 0 >"$3/cgroup.procs" # itself, whatever its number
  exec unshare --cgroup -- "$self" init "$1" "$2"
}

# init ROOT DIR builds the machine's mounts, leaves this machine's, and becomes systemd.
init() {
  local lower=$1 dir=$2 m=$2/mount n
  mount --make-rprivate /
  mount -t tmpfs -o mode=0755 booted "$m"
  mkdir -m 0755 "$m/upper" "$m/work" "$m/root"
  mount -t overlay -o "lowerdir=$lower,upperdir=$m/upper,workdir=$m/work" booted "$m/root"
  cd "$m/root"
  printf '%s\n' "$dir" >.marbles-booted
  echo booted >etc/hostname
  printf '127.0.0.1 localhost booted\n::1 localhost\n' >etc/hosts
  : >etc/fstab
  : >etc/machine-id
  mkdir -p var/log/journal
  # What a machine without hardware and network has no use for.
  for n in getty@.service console-getty.service serial-getty@.service container-getty@.service apt-daily.timer \
    apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-networkd.service \
    systemd-resolved.service systemd-timesyncd.service systemd-journald-audit.socket; do
    ln -sf /dev/null "etc/systemd/system/$n"
  done
  # A /dev of its own: the kernel's devtmpfs is shared with this machine.
  mount -t tmpfs -o mode=0755,nosuid booted dev
  for n in null zero full random urandom tty; do
    : >"dev/$n"
    mount --bind "/dev/$n" "dev/$n"
  done
  mkdir dev/pts dev/shm
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  mount -t proc -o nosuid,nodev,noexec proc proc
  for n in sys sysrq-trigger irq bus; do # the kernel's settings are this machine's
    [ ! -e "proc/$n" ] || { mount --bind "proc/$n" "proc/$n" && mount -o remount,bind,ro "proc/$n"; }
  done
  for n in kcore kmsg keys; do
    [ ! -e "proc/$n" ] || mount --bind /dev/null "proc/$n"
  done
  mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
  mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
  mount -t tmpfs -o mode=0755,nosuid,nodev booted run
  mount -t tmpfs -o mode=1777,nosuid,nodev booted tmp
  mkdir .old
  pivot_root . .old
  cd /
  umount -l /.old
  rmdir /.old
  if [ "$(stat -f -c %T /)" != overlayfs ] || [ "$(cat /.marbles-booted)" != "$dir" ] || [ -e /.old ] || [ -e "$dir" ]; then
    die '/ is not the root that was made for this run'
  fi
  mount --make-rshared / # or the mounts that systemd makes for credentials are not seen
  # No reboot of the kernel, no clock, no modules, no hardware, no kernel log.
  local drop=-sys_boot,-sys_time,-sys_module,-sys_rawio,-sys_pacct,-syslog,-wake_alarm,-mac_admin,-mac_override
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin container=marbles-booted LANG=C.UTF-8 \
    setpriv --bounding-set "$drop" --inh-caps "$drop" /lib/systemd/systemd --system --unit=multi-user.target
}

# ---------------------------------------------------------------------------------------------------------------

[ "$(id -u)" = 0 ] || die 'must be root'
verb=${1:-}
[ $# = 0 ] || shift
case $verb in
  prepare) [ $# -gt 0 ] || set -- "${suites[@]}"; prepare "$@" ;;
  root) find_root "$@" ;;
  boot | build) "$verb" "$@" ;;
  enter | init)
    [ $$ = 1 ] || die "$verb is for the PID 1 that boot makes"
    "$verb" "$@"
    ;;
  *) die 'usage: machine.sh prepare [SUITE...] | root SUITE | boot SUITE' ;;
esac
