#!/bin/bash
# lab-initrd.sh IMAGE RELEASE FAKEIB OUT   the initial RAM disk of a lab guest, from an extracted kernel package tree.
#
# It holds the modules and an init that puts a RAM overlay over the machine's own / (9p, read-only), mounts the share
# for results on /out, and continues with /out/run.sh.
set -euo pipefail

image=$1 release=$2 fakeib=$3 out=$4

modules="virtio_pci virtio_net virtio_rng 9pnet_virtio 9p overlay
 af_packet veth dummy macvlan ipvlan 8021q bridge bonding vrf tun tap e1000e igb igbvf
 ib_core ib_uverbs ib_umad rdma_cm rdma_ucm ib_ipoib rdma_rxe
 vfio vfio_pci
 crc32_generic crc32c_generic libcrc32c"

tree=$(find "$image" -type d -path "*lib/modules/$release" -prune | head -1)
[ -e "$tree/modules.order" ] || { echo "lab-initrd: no modules of $release in $image" >&2; exit 1; }
export PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
depmod -b "${tree%/lib/modules/*}" "$release"

# wanted modules with what they depend on; those that are built in have no line
target=$work/lib/modules/$release
for module in $modules; do
  { grep -E "(^|/)${module//_/[-_]}\.ko(\.xz|\.zst)?:" "$tree/modules.dep" || true; } | tr -d ':'
done | tr ' ' '\n' | sort -u | while read -r file; do
  [ -n "$file" ] || continue
  mkdir -p "$target/$(dirname "$file")"
  case $file in
    *.xz) xz -dc "$tree/$file" >"$target/${file%.xz}";;
    *.zst) zstd -dcq "$tree/$file" >"$target/${file%.zst}";;
    *) cp "$tree/$file" "$target/$file";;
  esac
done
mkdir -p "$target/updates" "$work"/{bin,etc,proc,sys,dev,tmp,run,lower,ov,newroot}
cp "$fakeib" "$target/updates/fakeib.ko"
cp "$tree"/modules.order "$tree"/modules.builtin* "$target/"
depmod -b "$work" "$release"
cp /bin/busybox "$work/bin/"

cat >"$work/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs dev /dev
echo "@@ init $($b cut -d' ' -f1 /proc/uptime)"
die() { echo "@@ failed: $*"; $b poweroff -f; }
for m in virtio_pci virtio_rng 9pnet_virtio 9p overlay; do $b modprobe $m 2>/dev/null; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /lower || die "9p root"
$b mount -t tmpfs tmpfs /ov; $b mkdir -p /ov/u /ov/w
$b mount -t overlay -o lowerdir=/lower,upperdir=/ov/u,workdir=/ov/w overlay /newroot || die "overlay"
n=/newroot
$b mkdir -p $n/out $n/proc $n/sys $n/dev $n/run $n/tmp $n/usr/lib/modules $n/var/lib/cni $n/etc/cni
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none out $n/out || die "9p out"
$b mount -t proc proc $n/proc; $b mount -t sysfs sysfs $n/sys; $b mount -t devtmpfs dev $n/dev
$b mkdir -p $n/dev/pts $n/dev/shm; $b mount -t devpts devpts $n/dev/pts; $b mount -t tmpfs tmpfs $n/dev/shm
# what the machine has there is not the guest's
for d in run usr/lib/modules var/lib/cni etc/cni; do $b mount -t tmpfs tmpfs $n/$d; done
$b cp -r /lib/modules/* $n/usr/lib/modules/
$b cp $b $n/run/busybox
$b ip link set lo up
echo "@@ root $($b cut -d' ' -f1 /proc/uptime)"
exec $b switch_root $n /bin/sh /out/run.sh
INIT
chmod +x "$work/init"
(cd "$work" && find . | LC_ALL=C sort | cpio -o -H newc --quiet) >"$out.tmp"
mv "$out.tmp" "$out"
