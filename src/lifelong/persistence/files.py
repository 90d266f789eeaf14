"""Atomic writes, checked reads, locks and checksums of files."""

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save
from torch import Tensor

ASIDE = ".incoming"  # one name for all, so that the next write replaces what a kill left behind
LOCK = ".lock"
MOST = 1 << 28  # maximum bytes of JSON; the decoded objects take several times as much
# Errors of file systems without locks; there the lock is skipped.
_CANNOT_LOCK = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_NUMBERS = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}


class TensorFileError(ValueError):
    """Bytes that are not tensors; the message says why."""


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file atomically: write a temporary file, sync it, read it back, and rename it."""
    aside = file.with_name(ASIDE)
    try:
        aside.unlink(missing_ok=True)
        with aside.open("xb") as stream:  # exclusive, so that no planted link is followed
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if read_file(aside) != content:
            raise OSError(errno.EIO, "what was written reads back differently")
        aside.replace(file)
        sync_directory(file.parent)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def read_file(file: Path, size: int | None = None, most: int | None = None) -> bytes:
    """The content of a regular file of exactly `size` bytes, or of at most `most`.

    Links, pipes and devices are refused: they could lead anywhere, block, or never end.
    """
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(file, os.O_RDONLY | flags), "rb") as stream:  # noqa: PTH123 (a descriptor)
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file")
        if size is not None and status.st_size != size:
            raise OSError(errno.EINVAL, f"has {status.st_size:,} bytes where {size:,} were saved")
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes, more than {most:,}")
        return stream.read()


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to disk, where the system supports it."""
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Create a directory and its parents, and flush them to disk."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


@contextmanager
def directory_lock(directory: Path, patience: float = 10.0) -> Iterator[None]:
    """Exclusive lock on a directory; waits up to `patience` seconds for it.

    The system frees the lock when the process ends, however it ends. The lock file is not removed:
    a waiting process has it open, and would then hold another lock than later ones.
    """
    lock = FileLock(directory / LOCK, timeout=patience, fallback_to_soft=False)
    with ExitStack() as held:
        try:
            held.enter_context(lock)
        except Timeout:
            raise OSError(errno.EBUSY, "another process is writing there") from None
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise
        yield


def digest(*parts: bytes | memoryview) -> str:
    """Checksum of the concatenated parts."""
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Checksum of tensors, including names, types and shapes."""
    checksum = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        checksum.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        checksum.update(tensor.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8).data)
    return checksum.hexdigest()


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors in the safetensors format. They may share memory; after `unpacked` they do not."""
    return save({n: tensor.detach().cpu().contiguous().numpy() for n, tensor in tensors.items()})


def unpacked(content: bytes) -> dict[str, Tensor]:
    """Tensors from the safetensors format, each copied into its own memory.

    Memory alignment may affect rounding, and a loaded model must continue exactly as the saved one.
    """
    try:
        views = deserialize(content)  # type: ignore[no-untyped-call]
        return {name: _tensor(name, **view) for name, view in views}
    except SafetensorError as error:
        raise TensorFileError(f"not a safetensors file: {error}") from error


def _tensor(name: str, dtype: str, shape: list[int], data: bytes) -> Tensor:
    if dtype not in _NUMBERS:
        raise TensorFileError(f"{name} is of type {dtype}, not one of {', '.join(_NUMBERS)}")
    return torch.tensor(np.frombuffer(data, _NUMBERS[dtype]).reshape(shape))
