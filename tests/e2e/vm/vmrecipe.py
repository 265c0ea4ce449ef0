"""What the guest is made of: Debian packages, kernel modules, units that only cost boot time.

Owns data and nothing else; how it is put together stands in vmimage.py. A change here changes the cache key.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Tools on this machine, by the program that shows their presence.
HOST_PACKAGES = {
    "qemu-system-x86": "qemu-system-x86_64",
    "busybox-static": "busybox",
    "cpio": "cpio",
    "squashfs-tools": "mksquashfs",
    "kmod": "depmod",
    "util-linux": "setpriv",
    "make": "make",
}

KERNEL_METAPACKAGE = "linux-image-amd64"

# Without recommendations; apt adds what these need.
GUEST_PACKAGES = _words("""
    base-files base-passwd bash coreutils dash dbus ethtool findutils grep gzip hostname iproute2 kmod
    libc-bin libnss-systemd login mawk mount passwd procps sed systemd systemd-sysv tar udev util-linux
    python3 python3-pyudev ibverbs-utils infiniband-diags perftest rdma-core rdmacm-utils
""")

# Needed by maintainer scripts only, and none of those runs: the packages are unpacked, not configured.
LEFT_OUT = _words("""
    adduser debconf init-system-helpers libicu libperl media-types perl perl-base perl-modules sensible-utils
""")

# Below lib/modules/VERSION/kernel; a quarter of what the kernel package holds.
MODULE_PATTERNS = _words("""
    arch/x86/crypto/* crypto/* lib/* drivers/block/virtio_blk.ko drivers/char/hw_random/*
    drivers/char/virtio_console.ko drivers/virtio/* drivers/infiniband/core/* drivers/infiniband/sw/*
    drivers/infiniband/ulp/ipoib/* drivers/net/bonding/* drivers/net/dummy.ko drivers/net/macvlan.ko
    drivers/net/net_failover.ko drivers/net/tun.ko drivers/net/veth.ko drivers/net/virtio_net.ko fs/9p/*
    fs/autofs/* fs/configfs/* fs/fscache/* fs/fuse/* fs/netfs/* fs/overlayfs/* fs/squashfs/* net/802/*
    net/8021q/* net/9p/* net/bridge/* net/core/* net/ipv4/* net/ipv6/* net/llc/* net/netfilter/* net/sched/*
    net/tls/*
""")

# In the order of need: disk, root, shares with this machine, the output port, entropy.
INITRAMFS_MODULES = _words("virtio_pci virtio_blk squashfs overlay 9pnet_virtio 9p virtio_console virtio-rng")

# A throw-away guest has no logins, no clock to set, no database to refresh.
MASKED_UNITS = _words("""
    apt-daily-upgrade.timer apt-daily.timer console-getty.service dev-hugepages.mount dpkg-db-backup.timer
    e2scrub_reap.service fstrim.timer getty-static.service getty@tty1.service ldconfig.service
    modprobe@.service motd-news.timer rdma-ndd.service serial-getty@ttyS0.service
    sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount systemd-binfmt.service
    systemd-boot-system-token.service systemd-firstboot.service systemd-hwdb-update.service
    systemd-logind.service systemd-machine-id-commit.service systemd-networkd.service systemd-pstore.service
    systemd-quotacheck.service systemd-random-seed.service systemd-resolved.service systemd-sysusers.service
    systemd-timesyncd.service systemd-udev-settle.service systemd-udev-trigger.service
    systemd-update-done.service systemd-update-utmp-runlevel.service systemd-update-utmp.service
    systemd-user-sessions.service systemd-vconsole-setup.service
""")
