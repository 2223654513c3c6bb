#!/usr/bin/env bash
# demo.sh [--yes] [--down DEVICE] DEVICE... [-- DEVICE...]   gives pods their rails, and the host its devices back.
#
# The DEVICEs before -- (netdevs, four at most) go to pod-a, those behind it to pod-b. The pods ping each other over
# each pair and, if perftest is installed, write into each other's memory. --down names a device whose port is not
# Active, to show what happens then. `make demo` runs this in a virtual machine; on a host with real HCAs run it as
# root. There it takes these devices from the host for a few seconds: their users lose them meanwhile, so it
# asks first (--yes: it does not).
#
# Needs: root, iproute2, ping; perftest for RDMA; Go, to build what it runs, unless $FABRIC_BIN is a directory with
# fabric, cnitool and host-local.
set -euo pipefail
cd "$(dirname "$0")/.."

yes='' down='' tmp='' exclusive='' step=0 bold='' off=''
a=() b=()
if [ -t 1 ] || [ -n "${FABRIC_DEMO_COLOR:-}" ]; then bold=$'\e[1m' off=$'\e[0m'; fi

die() { echo "demo: $*" >&2; exit 1; }
usage() { sed -n '2,/^set /s/^#$\|^# //p' "$0"; exit "$1"; }

# say HEADING [LINE...]: begins a numbered step
say() {
  step=$((step + 1))
  printf '\n%s%d. %s%s\n' "$bold" "$step" "$1" "$off"
  shift
  [ $# -eq 0 ] || printf '   %s\n' "$@"
}

# run COMMAND: shows it as one would type it, and what it prints. No further shell and no awk: in emulation a program
# that starts takes a tenth of a second.
run() {
  local line
  printf '\n   %s# %s%s\n' "$bold" "$*" "$off"
  (eval "$*") 2>&1 | while IFS= read -r line || [ -n "$line" ]; do printf '   %s\n' "$line"; done
}

# refused COMMAND: run for one that has to fail
refused() {
  if run "$@"; then die "that should have been refused"; fi
}

# state: what the host may lose, a line each. ifindexes, queue pair numbers (bytes 2 to 12 of an IPoIB address) and
# what is left of a lifetime are new each time by nature.
state() {
  local family
  ip -details address | awk '
    /^[0-9]+: / { dev = $2; sub(/[:@].*/, "", dev); sub(/^[0-9]+: /, "") }
    { sub(/^ */, ""); print dev ": " $0 }'
  for family in -4 -6; do
    ip "$family" route show table all | sed "s/^/route $family: /"
    ip "$family" rule show | sed "s/^/rule $family: /"
  done
  rdma link show | sed 's/^/rdma: /'
  find /dev/infiniband -mindepth 1 2>/dev/null || true
}
sorted_state() {
  state | sed -E 's#link/infiniband ([0-9a-f]{2}):([0-9a-f]{2}:){11}#link/infiniband \1:QPN:#
    s/(_lft|expires) [0-9]+sec/\1 .../g' | sort
}

# networks POD DEVICE...: has cnitool read ib-rail0 to ib-railN for these devices: in conf itself if it has them
networks() {
  local pod=$1 i=0 dev
  shift
  export NETCONFPATH=conf
  for dev in "$@"; do
    grep -q "\"device\": \"$dev\"" "conf/ib-rail$i.conflist" || NETCONFPATH=$tmp/$pod
    i=$((i + 1))
  done
  if [ "$NETCONFPATH" != conf ]; then
    mkdir "$NETCONFPATH"
    run "i=0; for dev in $*; do sed \"s/\\\"ibs[0-9]*\\\"/\\\"\$dev\\\"/\" conf/ib-rail\$i.conflist" \
      ">$NETCONFPATH/ib-rail\$i.conflist; i=\$((i+1)); done"
  fi
  printf '\n   %s# export CNI_PATH=%s NETCONFPATH=%s%s\n' "$bold" "$CNI_PATH" "$NETCONFPATH" "$off"
}

range() { seq -s' ' 0 $(($1 - 1)); }

cleanup() {
  local status=$? pod i
  for pod in pod-a pod-b; do
    for i in 0 1 2 3; do
      [ -e "$tmp/$pod.$i" ] || continue
      NETCONFPATH=$(cat "$tmp/$pod.$i") CNI_IFNAME=net$((i + 1)) cnitool del "ib-rail$i" "/run/netns/$pod" || true
    done
    [ ! -e "$tmp/$pod.netns" ] || ip netns delete "$pod" || true
  done
  rm -rf "$tmp"
  exit "$status"
}

attach() { # POD DEVICE...: one rail per device
  local pod=$1 i
  shift
  networks "$pod" "$@"
  touch "$tmp/$pod.netns"
  run "ip netns add $pod"
  for ((i = 0; i < $#; i++)); do echo "$NETCONFPATH" >"$tmp/$pod.$i"; done
  run "CNI_IFNAME=net1 cnitool add ib-rail0 /run/netns/$pod"
  if [ $# -gt 1 ]; then
    run "for i in $(range $# | cut -d' ' -f2-); do" \
      "CNI_IFNAME=net\$((i+1)) cnitool add ib-rail\$i /run/netns/$pod >/dev/null; done"
  fi
}

detach() { # POD RAIL...
  local pod=$1 i
  shift
  NETCONFPATH=$(cat "$tmp/$pod.$1")
  printf '\n   %s# export NETCONFPATH=%s%s\n' "$bold" "$NETCONFPATH" "$off"
  run "for i in $*; do CNI_IFNAME=net\$((i+1)) cnitool del ib-rail\$i /run/netns/$pod; done"
  for i in "$@"; do rm "$tmp/$pod.$i"; done
  run "ip netns delete $pod"
  rm "$tmp/$pod.netns"
}

address() { ip -n "$1" -4 -brief address show dev "$2" | awk '{ sub("/.*", "", $3); print $3 }'; }

pings() {
  local i to
  for ((i = 1; i <= $1; i++)); do
    to=$(address pod-b "net$i")
    # the first packets wait for the multicast groups and for ARP
    for _ in $(seq 10); do ip netns exec pod-a ping -q -c 1 -W 1 "$to" >/dev/null && break; done
    run "ip netns exec pod-a ping -q -c 3 -i 0.2 -I net$i $to | tail -2"
  done
}

# hca POD INTERFACE: the RDMA device of an interface, in the pod's own view
hca() { ip netns exec "$1" ls "/sys/class/net/$2/device/infiniband" 2>/dev/null; }

# write_over RAIL FROM TO COUNT: RDMA over one rail. Where perftest has sent everything and can't measure the CPU's
# clock (get_cpu_mhz in its get_clock.c; a busy emulated CPU is enough), it reports nothing: again, as fabricctl verify.
write_over() {
  local i=$1 from=$2 to=$3 count=$4 try
  for try in 1 2 3 4 5; do
    run "ip netns exec pod-b timeout 60 ib_write_bw -d $to -n $count >$tmp/server$i 2>&1 &"
    # it listens on a TCP port first: 18515 is 0x4853, and 0A is LISTEN
    ip netns exec pod-b timeout 60 sh -c \
      'until grep -qs ":4853 [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done' || true
    if run "ip netns exec pod-a timeout 60 ib_write_bw -d $from -n $count --report_gbits" \
      "$(address pod-b "net$i") | grep -A1 '#bytes'" | tee "$tmp/written"; then
      return
    fi
    if ! grep -q "Can't produce a report" "$tmp/written"; then
      sed 's/^/   the other end: /' "$tmp/server$i" >&2 || true
      return 1
    fi
    echo "   All is sent, but perftest could not measure the CPU's clock (run $try of 5)."
  done
  echo "   net$i: not measured."
}

# writes RAILS: RDMA over each, one after the other
writes() {
  local i from to count=5000
  say "They write into each other's memory over each rail" \
    "RDMA as applications do it: perftest, through libibverbs and the character devices."
  if ! command -v ib_write_bw >/dev/null; then
    echo "   Skipped: ib_write_bw is not installed (package perftest)."
    return
  fi
  if [ -n "${FABRIC_DEMO_EMULATED:-}" ]; then
    count=100
    echo "   Emulated: the figures say that it works, and nothing of what hardware does."
  fi
  for ((i = 1; i <= $1; i++)); do
    if ! from=$(hca pod-a "net$i") || ! to=$(hca pod-b "net$i"); then
      echo "   Skipped: net$i has no RDMA device at both ends."
      continue
    fi
    write_over "$i" "$from" "$to" "$count"
  done
}

arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      --yes) yes=yes ;;
      --down) down=${2:?} && shift ;;
      -h | --help) usage 0 ;;
      --) shift && b=("$@") && break ;;
      -*) usage 2 ;;
      *) a+=("$1") ;;
    esac
    shift
  done
  [ ${#a[@]} -ge 1 ] && [ ${#a[@]} -le 4 ] && [ ${#b[@]} -le 4 ] || usage 2
}

prepare() {
  local dev pod
  [ "$(id -u)" = 0 ] || die "run as root"
  for dev in "${a[@]}" "${b[@]}" ${down:+"$down"}; do
    [ -e "/sys/class/net/$dev" ] || die "there is no interface $dev; see: rdma link"
  done
  for pod in pod-a pod-b; do [ ! -e "/run/netns/$pod" ] || die "network namespace $pod is there already"; done
  if [ -z "${FABRIC_BIN:-}" ]; then
    make --no-print-directory build
    CGO_ENABLED=0 go build -o bin/ github.com/containernetworking/cni/cnitool \
      github.com/containernetworking/plugins/plugins/ipam/host-local
    FABRIC_BIN=$PWD/bin
  fi
  if [ -z "$yes" ]; then
    read -rp "This takes ${a[*]} ${b[*]} from the host for a few seconds. Go on? [y/N] " answer
    [ "$answer" = y ] || exit 1
  fi
  tmp=$(mktemp -d /tmp/fabric-demo.XXXX)
  trap cleanup EXIT
  export PATH=$FABRIC_BIN:$PATH CNI_PATH=$FABRIC_BIN
}

show_pod_a() {
  say "What the pod sees" \
    "Its own rails${exclusive:+ and their RDMA devices, and no others}. The name on the host is there as altname."
  run "ip netns exec pod-a ip address"
  run "ip netns exec pod-a rdma link"
  run "ip netns exec pod-a ls /sys/class/infiniband"
  run "ip netns exec pod-a ip rule"
  say "What is left on the host"
  run "rdma link"
  run "for i in $(range ${#a[@]}); do" \
    "CNI_IFNAME=net\$((i+1)) cnitool check ib-rail\$i /run/netns/pod-a; done; echo as promised"
}

refusals() {
  say "A device that would not work is refused" "A Down port means a pod that falls back to TCP without a word."
  mkdir "$tmp/refused"
  run "sed 's/ib-rail0/ib-down/; s/\"ibs[0-9]*\"/\"$down\"/' conf/ib-rail0.conflist >$tmp/refused/ib-down.conflist"
  refused "CNI_IFNAME=net9 NETCONFPATH=$tmp/refused cnitool add ib-down /run/netns/pod-a"
}

verdict() {
  say "The host, before and after" \
    "Names, altnames, MTU, modes, addresses, routes of all tables, rules, RDMA devices, device files."
  # carriers and link-local addresses come back a moment after their devices
  for _ in $(seq 50); do
    sorted_state >"$tmp/after"
    cmp -s "$tmp/before" "$tmp/after" && break
    sleep 0.2
  done
  if ! run "diff $tmp/before $tmp/after && echo \"identical: \$(wc -l <$tmp/after) lines\""; then
    echo "demo: the host is not what it was (< before, > after)" >&2
    exit 1
  fi
}

arguments "$@"
prepare
sorted_state >"$tmp/before"
say "The host"
run "rdma system"
run "rdma link"
run "ip -brief address"
if rdma system | grep -q 'netns exclusive'; then
  exclusive=yes
else
  echo "   RDMA devices are shared between network namespaces here, so only the interfaces move." \
    "See docs/troubleshooting.md."
fi
say "A pod, ${#a[@]} rail(s)" \
  "One network per rail. Each ADD moves a device${exclusive:+, netdev and RDMA device,} into the pod and addresses it."
run "cat conf/ib-rail0.conflist"
attach pod-a "${a[@]}"
show_pod_a
if [ ${#b[@]} -gt 0 ]; then
  say "A second pod, ${FABRIC_DEMO_PEER:-on other devices of this host}"
  attach pod-b "${b[@]}"
  say "The pods reach each other over the fabric"
  pairs=$((${#a[@]} < ${#b[@]} ? ${#a[@]} : ${#b[@]}))
  pings $pairs
  writes $pairs
fi
[ -z "$down" ] || refusals
say "Everything goes back" "In another order than it was taken."
# shellcheck disable=SC2046 # a list of numbers
detach pod-a $(range ${#a[@]} | tr ' ' '\n' | tac)
# shellcheck disable=SC2046
[ ${#b[@]} -eq 0 ] || detach pod-b $(range ${#b[@]})
verdict
