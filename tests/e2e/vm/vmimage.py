"""Builds the guest and keeps it: kernel, initramfs and root file system in a cache outside the checkout.

Owns the cache entry `vm-KEY`; knows nothing of running a guest. The key covers the kernel's version and every
file that goes in, so a changed recipe is another entry. Needs root, apt and about 30 seconds, once.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import vmapt
import vmrecipe

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
_SBIN_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_KEPT_ENTRIES = 2


class ImageError(Exception):
    """The guest could not be built."""


@dataclass(frozen=True)
class Image:
    """A built guest: three files in one directory of the cache."""

    directory: Path

    @property
    def kernel(self) -> Path:
        """The uncompressed kernel: entered by PVH, it starts two seconds sooner under emulation than a bzImage."""
        return self.directory / "vmlinux"

    @property
    def initramfs(self) -> Path:
        """Mounts the root file system under a tmpfs and hands over to it."""
        return self.directory / "initrd.img"

    @property
    def root(self) -> Path:
        """The root file system, a squashfs that no guest can change."""
        return self.directory / "root.sqfs"


def cache_directory() -> Path:
    """Where the end-to-end tests keep what takes long to build."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ibmon-e2e"


def ensure_image() -> Image:
    """The guest of the present recipe, built if it is not in the cache.

    Raises:
        ImageError: not root, or a step of the build failed.
        vmapt.AptError: a package could not be had.
    """
    if os.geteuid() != 0:
        raise ImageError("the guest is built by root (chroot, device numbers, apt); run it as root")
    vmapt.install_missing_tools(vmrecipe.HOST_PACKAGES)
    kernel, version = vmapt.newest_kernel(vmrecipe.KERNEL_METAPACKAGE)
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    entry = cache / f"vm-{_key(kernel, version)}"
    if not entry.is_dir():
        with _lock(cache / "vm.lock"):
            if not entry.is_dir():  # another run may have built it while this one waited
                _build_aside(kernel, entry)
    os.utime(entry)
    _prune(cache)
    return Image(entry)


def _key(kernel: str, version: str) -> str:
    digest = hashlib.sha256(f"{kernel} {version}\n".encode())
    parts = [HERE / "vmapt.py", HERE / "vmimage.py", HERE / "vmrecipe.py"]
    for name in ("rootfs", "initramfs", "kmods"):
        parts += sorted(path for path in (HERE / name).rglob("*") if path.is_file())
    for path in parts:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(HERE)} {path.stat().st_mode:o} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(cache: Path) -> None:
    """Entries of earlier recipes go; a guest that still runs from one has its files open and keeps them."""
    entries = [path for path in cache.glob("vm-*") if path.is_dir() and "." not in path.name]
    entries.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in entries[_KEPT_ENTRIES:]:
        shutil.rmtree(path, ignore_errors=True)


def _build_aside(kernel: str, entry: Path) -> None:
    """Builds into a directory of another name and renames it: a broken build is never taken for a whole one."""
    for left_over in entry.parent.glob("vm-*.build-*"):  # of a run that was killed; the lock is ours
        shutil.rmtree(left_over, ignore_errors=True)
    build = Path(tempfile.mkdtemp(prefix=f"{entry.name}.build-", dir=entry.parent))
    build.chmod(0o755)
    try:
        image = Image(build)
        work = build / "work"
        work.mkdir()
        _build(kernel, image, work)
        shutil.rmtree(work)
        build.rename(entry)
    finally:
        shutil.rmtree(build, ignore_errors=True)


def _build(kernel: str, image: Image, work: Path) -> None:
    release = kernel.removeprefix("linux-image-")
    boot, root = work / "kernel", work / "root"
    _unpack_kernel(kernel, release, boot)
    image.kernel.write_bytes(_uncompressed((boot / f"boot/vmlinuz-{release}").read_bytes()))
    _unpack_packages(root, work / "debs")
    (root / "lib/modules").mkdir(parents=True)
    shutil.move(boot / f"lib/modules/{release}", root / f"lib/modules/{release}")
    _build_modules(release, root, work)
    _run("depmod", "-b", str(root), release)
    _finish_root(root)
    _run(
        "mksquashfs", str(root), str(image.root), *["-comp", "lz4", "-noappend", "-quiet", "-no-progress", "-no-xattrs"]
    )
    _make_initramfs(image, release, root, work / "initramfs")


def _run(*argv: str, cwd: Path | None = None) -> str:
    env = {**os.environ, "PATH": _SBIN_PATH}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"{' '.join(argv)}: exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _unpack_kernel(kernel: str, release: str, into: Path) -> None:
    into.mkdir()
    deb = vmapt.download(kernel, into)
    modules = f"./lib/modules/{release}"
    patterns = [f"{modules}/kernel/{pattern}" for pattern in vmrecipe.MODULE_PATTERNS]
    vmapt.unpack(deb, into, "--wildcards", "./boot/vmlinuz-*", f"{modules}/modules.*", *patterns)


def _uncompressed(bzimage: bytes) -> bytes:
    """The ELF kernel inside a bzImage, which is a loader followed by one compressed stream."""
    formats = (
        (b"\xfd7zXZ\0", lzma.LZMADecompressor),
        (b"\x1f\x8b\x08", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    )
    for magic, decompressor in formats:
        start = bzimage.find(magic)
        if start > 0:
            kernel = decompressor().decompress(bzimage[start:])
            if kernel.startswith(b"\x7fELF"):
                return kernel
    raise ImageError("no ELF kernel inside the bzImage: its compression is neither xz nor gzip")


def _unpack_packages(root: Path, debs: Path) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    not_needed = ("share/man/*", "share/doc/*", "share/locale/*", "share/bash-completion/*", "lib/python3*/test/*")
    excludes = [f"--exclude=./usr/{pattern}" for pattern in not_needed]
    # Package names may carry a version: libperl5.36, perl-modules-5.36.
    left_out = re.compile(rf"({'|'.join(vmrecipe.LEFT_OUT)})[-0-9.]*_")
    closure = vmapt.download_closure(vmrecipe.GUEST_PACKAGES, debs)
    wanted = [deb for deb in closure if not left_out.match(deb.name)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda deb: vmapt.unpack(deb, root, *excludes), wanted))


def _build_modules(release: str, root: Path, work: Path) -> None:
    """Our drivers, compiled against the headers of exactly the guest's kernel."""
    headers = f"linux-headers-{release}"
    if not vmapt.installed(headers):
        vmapt.install([headers])
    target = root / f"lib/modules/{release}/extra"
    target.mkdir()
    for source in sorted((HERE / "kmods").iterdir()):
        build = work / source.name
        shutil.copytree(source, build)
        _run("make", "-s", "-C", f"/usr/src/{headers}", f"M={build}", f"-j{os.cpu_count()}", "modules")
        for module in build.glob("*.ko"):
            _run("strip", "--strip-debug", str(module))
            shutil.copy(module, target)


def _finish_root(root: Path) -> None:
    """What the maintainer scripts would have done, as far as a throw-away guest needs it."""
    master = root / "usr/share/base-passwd"
    users = (master / "passwd.master").read_text().replace("root:*:", "root::")
    groups = (master / "group.master").read_text()
    etc = {
        "passwd": users + "messagebus:x:101:101::/nonexistent:/usr/sbin/nologin\n",
        "group": groups + "messagebus:x:101:\n",
        "hostname": "ibvm\n",
        "hosts": "127.0.0.1 localhost ibvm\n",
        "machine-id": "",
        "fstab": "",
        "rdma/modules/rdma.conf": "ib_umad\nrdma_ucm\nib_uverbs\n",
        "rdma/modules/roce.conf": "",
        "rdma/modules/infiniband.conf": "",
    }
    for name, text in etc.items():
        (root / "etc" / name).write_text(text)
    for name in ["dev", "proc", "sys", "run", "tmp", "root", "mnt", "host", "out"]:
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "usr/bin/awk").symlink_to("mawk")
    if not (root / "usr/bin/sh").exists():
        (root / "usr/bin/sh").symlink_to("dash")
    shutil.copytree(HERE / "rootfs", root, symlinks=True, dirs_exist_ok=True)
    _run("ldconfig", "-r", str(root))
    units = root / "etc/systemd/system"
    for unit in vmrecipe.MASKED_UNITS:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    # Saves seconds of every guest's start. A file that does not compile is left as it is.
    chroot = ("chroot", str(root), "/usr/bin/python3", "-m", "compileall", "-q", "/usr/lib")
    subprocess.run(chroot, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _make_initramfs(image: Image, release: str, root: Path, tree: Path) -> None:
    for name in ["bin", "dev", "lower", "mod", "new", "proc", "rw", "sys"]:
        (tree / name).mkdir(parents=True)
    busybox = shutil.which("busybox", path=_SBIN_PATH)
    if busybox is None:
        raise ImageError("busybox is not here although busybox-static is installed")
    shutil.copy(busybox, tree / "bin/busybox")
    shutil.copy(HERE / "initramfs/init", tree / "init")
    (tree / "init").chmod(0o755)
    order: list[str] = []
    for module in vmrecipe.INITRAMFS_MODULES:
        for line in _run("modprobe", "-d", str(root), "-S", release, "--show-depends", module).splitlines():
            verb, _, path = line.partition(" ")
            if verb == "insmod" and Path(path.strip()).name not in order:
                shutil.copy(path.strip(), tree / "mod")
                order.append(Path(path.strip()).name)
    (tree / "mod/order").write_text("".join(f"{name}\n" for name in order))
    files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    with image.initramfs.open("wb") as archive:
        argv = ("cpio", "-o", "-H", "newc", "--quiet")
        subprocess.run(argv, cwd=tree, input="\n".join(files).encode(), stdout=archive, check=True)
