"""Frames of a recording applied to a real directory, for a daemon that runs with `--sysfs DIR`.

Owns how a change on disk stays readable in every instant. What plain files cannot show, it refuses: a read that hangs,
and any errno but ENOENT. `ibmon.virtualtree` can show both.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ibmon.recording import Frame, RecordingError

_FRESH = ".new-file"  # a file of the root that is being made; no reader of sysfs looks there


class DirectoryTree:
    """A directory that frames are applied to; `root` is made if need be.

    A file is changed in place and never replaced: kept descriptors, read with `pread` at offset 0, must see the new
    value as in sysfs. A reader beside it must see the old text or the new one, never an empty file or a mixture, so the
    length of a file does not change together with its text: it first grows by newlines where the new text is longer,
    then one `pwrite` of that length replaces the text, and it never shrinks. Texts may thus end in more newlines than
    the frame gave; every reader of sysfs strips those.
    A file that is removed is emptied first. In sysfs an old descriptor gives ENODEV from then on; a plain file cannot
    do that, but it must not go on showing the last value.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self._real_root = Path(os.path.realpath(self.root))

    def apply(self, frame: Frame) -> None:
        """Do what a frame says of files; its other keys are the caller's business.

        Raises:
            RecordingError: for what a plain directory cannot show (before anything is changed), and where a key does
                not fit the tree (the frame is then applied in part).
        """
        self._refuse(frame)
        try:
            for path in frame.remove:
                self._remove(path)
            for path in frame.dirs:
                (self.root / path).mkdir(parents=True, exist_ok=True)
            for path, target in frame.links.items():
                self._link(path, target)
            for path, text in frame.files.items():
                self._write(path, text)
            for path, name in frame.errnos.items():
                if name == "ENOENT":
                    self._remove(path)
        except OSError as error:
            raise RecordingError(f"frame at t={frame.t:g}: {error.filename}: {error.strerror}") from error

    def _refuse(self, frame: Frame) -> None:
        beyond = [f"block {path}: reads of plain files cannot hang" for path in frame.block]
        beyond += [
            f"errno {path}: reads of plain files cannot fail with {name}"
            for path, name in frame.errnos.items()
            if name not in {None, "ENOENT"}
        ]
        if beyond:
            raise RecordingError(f"frame at t={frame.t:g}: {beyond[0]}; play it with ibmon replay")

    def _remove(self, path: str) -> None:
        place = self.root / path
        if place.is_dir() and not place.is_symlink():
            for file in (Path(above, name) for above, _, names in os.walk(place) for name in names):
                if not file.is_symlink():
                    os.truncate(file, 0)
            shutil.rmtree(place)
        elif os.path.lexists(place):
            if not place.is_symlink():
                os.truncate(place, 0)
            place.unlink()

    def _link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        above = Path(os.path.realpath(place.parent))
        place = above / place.name  # where it really is: the old link may stand on the way to itself
        # An absolute target starts at the tree's root, as the kernel would see it if the tree were /sys.
        aim = os.path.normpath(self._real_root / target[1:] if target[0] == "/" else above / target)
        if not Path(aim).is_relative_to(self._real_root):
            raise OSError(0, f"the link target {target!r} leads out of the tree; name one within it", path)
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            self._remove_file(place)
        place.symlink_to(os.path.relpath(aim, above) if target[0] == "/" else target)

    def _remove_file(self, place: Path) -> None:
        os.truncate(place, 0)  # EISDIR for a directory: it is not replaced by a link
        place.unlink()

    def _write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.stat()  # a dangling link is an error, not a file that appears at its end
        new = text.encode()
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Nobody holds it open yet: it appears whole.
            fresh = self.root / _FRESH
            fresh.write_bytes(new)
            fresh.rename(place)
            return
        try:
            old = os.fstat(descriptor).st_size
            if len(new) > old:
                os.pwrite(descriptor, b"\n" * (len(new) - old), old)
            os.pwrite(descriptor, new.ljust(old, b"\n"), 0)
        finally:
            os.close(descriptor)
