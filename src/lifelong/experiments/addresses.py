"""Files at an address: `s3://bucket/study`, `gs://…`, or `file:///…` on a mount.

fsspec speaks to the store. Names are relative to the address.
"""

import os
import platform
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import final

import fsspec

from lifelong.experiments.stored import StoredError

BULK = 500  # files that are asked for at once
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")


def is_address(text: str) -> bool:
    """Whether this is an address, and not a directory."""
    return _ADDRESS.match(text) is not None


@final
class FilesAt:
    """The files at an address; each is written completely or not at all."""

    def __init__(self, address: str) -> None:
        try:
            self._files, root = fsspec.url_to_fs(address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise StoredError(
                f"{address}: no such store can be reached from here: {error}; install what speaks "
                "to it (s3fs, gcsfs, adlfs), or give a directory"
            ) from error
        self._root = root.rstrip("/")

    def put(self, name: PurePosixPath, content: bytes) -> None:
        """Write a file, in place of one that is there."""
        self._make_parents(name)
        mine = f"{platform.node()}-{os.getpid()}-{threading.get_ident()}"
        aside = self._at(name.with_name(f"{name.name}.{mine}.incoming"))
        self._files.pipe_file(aside, content)
        self._files.mv(aside, self._at(name))

    def create(self, name: PurePosixPath, content: bytes) -> bool:
        """Write a file unless there is one: one atomic act in every store. Whether it was done."""
        try:
            self._make_parents(name)
            with self._files.open(self._at(name), "xb") as stream:
                stream.write(content)
        except (FileExistsError, FileNotFoundError):  # another was faster, or has just ended
            return False
        return True

    def read(self, name: PurePosixPath) -> bytes | None:
        """The content, if the file is there."""
        with suppress(FileNotFoundError):
            return bytes(self._files.cat_file(self._at(name)))
        return None

    def age(self, name: PurePosixPath) -> float | None:
        """Seconds since the file was written, if it is there."""
        try:
            written: datetime = self._files.modified(self._at(name))
        except FileNotFoundError:
            return None
        aware = written if written.tzinfo else written.replace(tzinfo=UTC)
        return (datetime.now(UTC) - aware).total_seconds()

    def names_in(self, directory: PurePosixPath) -> list[str]:
        """What lies directly in a directory."""
        try:
            found = self._files.ls(self._at(directory), False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [PurePosixPath(name).name for name in found]

    def sizes(self, below: PurePosixPath) -> dict[PurePosixPath, int]:
        """All files below a place, with their sizes."""
        found = self._files.find(self._at(below), detail=True)
        names = {PurePosixPath(name).relative_to(self._root): i for name, i in found.items()}
        return {n: int(info["size"]) for n, info in names.items() if ".." not in n.parts}

    def copy(self, wanted: Mapping[PurePosixPath, Path]) -> None:
        """Copy these files to this machine."""
        names = list(wanted)
        for first in range(0, len(names), BULK):
            bulk = {self._at(name): wanted[name] for name in names[first : first + BULK]}
            for name, content in self._contents(list(bulk)).items():
                _write(bulk[name], content)

    def rename(self, name: PurePosixPath, new: PurePosixPath) -> None:
        with suppress(FileNotFoundError):
            self._files.mv(self._at(name), self._at(new))

    def remove(self, name: PurePosixPath) -> None:
        with suppress(FileNotFoundError):
            self._files.rm(self._at(name), recursive=True)

    def _contents(self, names: list[str]) -> dict[str, bytes]:
        found = self._files.cat(names) if len(names) > 1 else None
        return found or {name: self._files.cat_file(name) for name in names}

    def _make_parents(self, name: PurePosixPath) -> None:
        self._files.makedirs(self._at(name.parent), exist_ok=True)

    def _at(self, name: PurePosixPath) -> str:
        return f"{self._root}/{name}"


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.{os.getpid()}.incoming")
    aside.write_bytes(content)
    aside.replace(file)
