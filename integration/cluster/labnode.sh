#!/bin/sh
# labnode.sh   makes a guest of the lab a node of the cluster, all but its kubelet. Runs as root in the guest.
#
# /out/env says which one: NAME, NUMBER, HCAS (words RDMA-DEVICE=NETDEV, on PCI functions), SPARES (those on platform
# devices, without a cable), CACHE, RUN, USERLAND.
# What a node keeps is on RAM disks: a reboot loses it, as a new node would not have it.
set -eu
# shellcheck source=/dev/null
. /out/env
export PATH="$CACHE/containerd:$CACHE/debroot/usr/sbin:$CACHE/bin:$PATH"

hostname "$NAME"
mount --make-rshared /
modprobe virtio_net
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip address add "10.77.$NUMBER.1/32" dev eth0
ip route add default via 10.0.2.2
# The service of the API server, for pods; what is on the node goes to the other address.
ip address add 10.96.0.1/32 dev lo
"$RUN/bin/nodeagent" :2222 10.96.0.1:443 10.77.0.1:6443 >/out/nodeagent.log 2>&1 &

mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/init # a group with controllers for others may have no process of its own
while read -r pid; do
  echo "$pid" >/sys/fs/cgroup/init/cgroup.procs 2>/dev/null || true
done </sys/fs/cgroup/cgroup.procs
tr ' ' '\n' </sys/fs/cgroup/cgroup.controllers |
  while read -r controller; do echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control; done

# What the machine has there is the other node's.
mkdir -p /run/netns /opt/cni/bin /etc/kubernetes/manifests
for dir in /var/lib/containerd /var/lib/kubelet /var/log /opt/cni/bin; do
  mkdir -p "$dir"
  mount -t tmpfs tmpfs "$dir"
done
mount --make-rshared /var/lib/kubelet
mount --bind /run/netns /run/netns
mount --make-shared /run/netns
ln -s "$(readlink -f "$CACHE/cnibin")"/* /opt/cni/bin/ # the link moves when they are built again
mkdir -p /etc/cni/multus/net.d
cp -r /out/net.d /etc/cni/
if [ -d /out/earlier ]; then # the journal of an earlier boot, as a node has it whose /run is on a disk
  mkdir -p /run/fabric-cni
  cp -r /out/earlier/. /run/fabric-cni/
fi
echo 1 >/proc/sys/net/ipv4/ip_forward

# What pods that do RDMA mount as /usr: this machine's, with perftest, UCX and Open MPI over it. Two ends that poll
# share a CPU here: each answer waits for the other's time slice, and the 1000 of ib_write_lat may take a minute.
mkdir -p /run/usr /run/usr.local/local/bin
printf '#!/bin/sh\nexec /usr/bin/ib_write_lat -n 20 "$@"\n' >/run/usr.local/local/bin/ib_write_lat
chmod 755 /run/usr.local/local/bin/ib_write_lat
mount -t overlay -o "lowerdir=/run/usr.local:$USERLAND/root/usr:/usr" overlay /run/usr

# What a node keeps over a reboot: modprobe.d, and an initramfs with a copy of it, which is what ib_core is loaded with.
# The stand-in for update-initramfs makes the copy.
mkdir -p /out/modprobe.d /out/initramfs /out/boot /boot /usr/local/sbin
mount --bind /out/modprobe.d /etc/modprobe.d
mount --bind /out/boot /boot
cat >/usr/local/sbin/update-initramfs <<'END'
#!/bin/sh
set -e
[ "$*" = "-u -k all" ]
rm -f /out/initramfs/*
cp /etc/modprobe.d/*.conf /out/initramfs/
touch "/boot/initrd.img-$(uname -r)"
END
chmod 755 /usr/local/sbin/update-initramfs

# The HCAs. Ports on platform devices have no cable at first, those on PCI functions have one.
modprobe -C /out/initramfs ib_core
modprobe -a ib_uverbs ib_umad rdma_ucm ib_ipoib veth bridge
names='' states='' count=0
for hca in $SPARES; do names=$names${hca%=*}, states=${states}1, count=$((count + 1)); done
for hca in $HCAS; do names=$names${hca%=*},; done
# All LIDs and GUIDs of the nodes of one fabric differ.
modprobe fakeib "num=$count" "state=${states%,}" pci=1 "lid=$((NUMBER * 256))" "names=${names%,}"
for hca in $HCAS $SPARES; do
  device=${hca%=*} netdev=${hca#*=}
  was=$(ls "/sys/class/infiniband/$device/device/net")
  ip link set "$was" name "$netdev"
  ip link set "$netdev" up
done
# Something to lose.
first=${HCAS%% *} first=${first#*=}
ip link property add dev "$first" altname rail0
ip link set "$first" mtu 2044 txqueuelen 512 alias "rail 0, leaf 1 port 12"
ip address add "10.8.0.$NUMBER/24" dev "$first"
ip route add 10.88.0.0/16 via 10.8.0.254 dev "$first" metric 77

containerd --config /out/containerd.toml >/out/containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep .2; done
for archive in /out/*.tar; do
  until ctr -n k8s.io images import "$archive"; do sleep .5; done
done
if [ -e /out/images.sh ]; then # other names for them
  # shellcheck source=/dev/null
  . /out/images.sh
fi
touch /out/booted
until [ -e /out/end ]; do sleep 3; done # each is a fork, which costs much in emulation
