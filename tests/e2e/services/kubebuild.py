"""A kube-apiserver made from Debian's source package, once, in a cache outside the checkout.

No package has the binary; the source package `kubernetes` is the complete upstream tree of 1.20.2 with its vendored
parts, of which Debian builds kubectl alone. Three to seven minutes on two cores. Must not: touch apt's configuration or
install anything.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from . import debian
from .processes import ServiceError, tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = "1.20.2"
_GO = ("golang-1.19-go", "golang-1.19-src")
_PACKAGE = "k8s.io/kubernetes"
# Without the cloud providers: two thirds of the time, half of the size.
_TAGS = "providerless"
_LONGEST = 3600.0


def apiserver() -> Path:
    """Returns the path of a kube-apiserver; it is built where the cache has none.

    Made aside, under a lock, and renamed into place. What an interrupted build has compiled is kept for the next.

    Raises:
        ServiceError: when a source cannot be fetched or does not build; the text is the end of the log.
    """
    cache = debian.cache_directory().parent / "kubernetes"
    cache.mkdir(exist_ok=True)
    target = cache / f"kube-apiserver-{VERSION}-{_TAGS}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            work = cache / "work"
            work.mkdir(exist_ok=True)
            _Build(work).run().rename(target)
            shutil.rmtree(work)
    return target


class _Build:
    """One build in a directory of its own."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._log = work / "log"
        root = debian.unpacked(*_GO)
        self._go = root / "usr/lib/go-1.19/bin/go"
        self._env = {
            "PATH": f"{self._go.parent}:{os.environ['PATH']}",
            "HOME": str(work),
            "GOROOT": str(root / "usr/lib/go-1.19"),
            "GOPATH": str(work / "gopath"),
            "GOCACHE": str(work / "gocache"),
            # As Debian builds it: module mode asks for changes to go.mod.
            "GO111MODULE": "off",
            "GOPROXY": "off",
            "GOFLAGS": "",
            "CGO_ENABLED": "0",
        }

    def run(self) -> Path:
        """Fetch, generate, compile; the path of the program."""
        tree = self._place(self._source())
        self._generate_openapi(tree)
        program = self._work / "kube-apiserver"
        version = f"{_PACKAGE}/vendor/k8s.io/component-base/version"
        client = f"{_PACKAGE}/vendor/k8s.io/client-go/pkg/version"
        flags = (
            f"-s -w -X {version}.gitVersion=v{VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor=20 "
            f"-X {client}.gitVersion=v{VERSION}"
        )
        build = ("build", "-p", "2", "-tags", _TAGS, "-trimpath", "-ldflags", flags, "-o", program)
        self._do([self._go, *build, "./cmd/kube-apiserver"], tree)
        return program

    def _source(self) -> Path:
        """The upstream archive, by package lists of its own that are made from the machine's."""
        found = sorted(self._work.glob("kubernetes_*.orig.tar.*"))
        if not found:
            parts = self._work / "sources"
            parts.mkdir(exist_ok=True)
            (self._work / "lists/partial").mkdir(parents=True, exist_ok=True)
            _write_source_lists(Path("/etc/apt"), parts)
            options = (
                "Dir::Etc::sourcelist=/dev/null",
                f"Dir::Etc::sourceparts={parts}",
                f"Dir::State::Lists={self._work / 'lists'}",
                "APT::Sandbox::User=",
            )
            apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
            self._do([*apt, "update"], self._work, os.environ)
            self._do([*apt, "source", "--download-only", "kubernetes"], self._work, os.environ)
            found = sorted(self._work.glob("kubernetes_*.orig.tar.*"))
        if not found:
            raise ServiceError("the source package kubernetes has no upstream archive")
        return found[0]

    def _place(self, archive: Path) -> Path:
        """The tree where Go looks for the package."""
        tree = self._work / "gopath/src" / _PACKAGE
        if not tree.is_dir():
            aside = self._work / "unpacked"
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            self._do(["tar", "--extract", "--strip-components=1", "--file", archive, "--directory", aside], self._work)
            tree.parent.mkdir(parents=True, exist_ok=True)
            aside.rename(tree)
        return tree

    def _generate_openapi(self, tree: Path) -> None:
        """The one generated file that the source package lacks (upstream: Makefile.generated_files)."""
        if (tree / "pkg/generated/openapi/zz_generated.openapi.go").exists():
            return
        generator = self._work / "openapi-gen"
        self._do([self._go, "build", "-p", "2", "-o", generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"], tree)
        packages = ",".join(f"{_PACKAGE}/{directory}" for directory in _marked_directories(tree))
        self._do(
            [
                generator, "--logtostderr", "-i", packages, "-p", f"{_PACKAGE}/pkg/generated/openapi",
                "-O", "zz_generated.openapi", "-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
                "-r", self._work / "violations",
            ],
            tree,
        )  # fmt: skip

    def _do(self, argv: Sequence[str | Path], place: Path, env: Mapping[str, str] | None = None) -> None:
        with self._log.open("ab") as log:
            done = subprocess.run(
                list(argv), cwd=place, env=env or self._env, stdout=log, stderr=log, timeout=_LONGEST, check=False
            )
        if done.returncode:
            raise ServiceError(f"{Path(argv[0]).name} failed while kube-apiserver was built:\n{tail(self._log, 30)}")


def _marked_directories(tree: Path) -> list[str]:
    """Where types are marked for the API's description; two vendored parts are no part of the server."""
    vendored = [d for d in sorted((tree / "vendor/k8s.io").iterdir()) if d.is_dir()]
    left_out = {"code-generator", "sample-apiserver"}
    places = [tree / "pkg", tree / "cmd", tree / "plugin", *(d for d in vendored if d.name not in left_out)]
    mark = b"+k8s:openapi-gen="
    # The vendored parts are links into staging/, whose real place is no package name.
    found = {
        os.path.relpath(directory, tree)
        for place in places
        for directory, _, names in os.walk(f"{place}/")
        if any(mark in Path(directory, name).read_bytes() for name in names if name.endswith(".go"))
    }
    return sorted(found)


def _write_source_lists(apt: Path, parts: Path) -> None:
    """Every source of packages of this machine as a source of source packages, in both forms that apt has."""
    lines = [
        line.replace("deb ", "deb-src ", 1)
        for file in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]
        if file.is_file()
        for line in file.read_text().splitlines()
        if line.startswith("deb ")
    ]
    (parts / "machine.list").write_text("\n".join(lines) + "\n")
    stanzas = [
        "\n".join(
            "Types: deb-src" if line.lower().startswith("types:") else line for line in file.read_text().splitlines()
        )
        for file in sorted((apt / "sources.list.d").glob("*.sources"))
    ]
    (parts / "machine.sources").write_text("\n\n".join(stanzas) + "\n")
