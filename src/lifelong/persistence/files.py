"""Atomic writes, checked reads, locks and checksums of files."""

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save
from torch import Tensor

ASIDE = ".incoming"  # one name for all, so that the next write replaces what a kill left behind
LOCK = ".lock"
# What a file may hold. Writers refuse more as readers do, so that all that was saved can be loaded;
# and reading takes no more time and memory than these limits and the size of a file allow.
MOST = 1 << 26  # bytes of JSON; what it is decoded into takes several times as much
MOST_NESTED = 1_000_000  # lists and objects in it, each of which takes up to 30 times its bytes
MOST_QUOTES = 5_000_000  # quotation marks in it, two for each text
MOST_NAME = 1000  # characters
MOST_TASKS = 10_000
MOST_LAYERS = 2000
MOST_TENSORS = 50_000
MOST_HEADER = 1 << 24  # bytes that name them and say their shapes
MOST_DIMS = 8  # of a tensor
MOST_SIZE = 1 << 40  # of a dim
MOST_TRAININGS = 10_000  # of one learning
# What bad JSON raises; a number in it may be too long, or too large for a float.
NOT_DECODED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, MemoryError)
# What some network file systems answer who wants to lock; there one writes without.
_CANNOT_LOCK = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_NUMBERS = {
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I64": np.int64,
    "U8": np.uint8,
}


class TensorFileError(ValueError):
    """Bytes that are not tensors; the message says why."""


class LimitError(ValueError):
    """More than a file may hold; the message says of what, and how much is allowed."""


def require_at_most(most: int, what: str, count: int) -> None:
    """Refuse what is over a limit."""
    if count > most:
        raise LimitError(f"it holds {count:,} {what}, at most {most:,} are allowed")


def require_decodable(content: bytes) -> None:
    """Refuse JSON that would take more memory than its size justifies, before it is decoded."""
    require_at_most(MOST, "bytes", len(content))
    nested = content.count(b"[") + content.count(b"{")
    require_at_most(MOST_NESTED, "lists and objects", nested)
    require_at_most(MOST_QUOTES, "quotation marks", content.count(b'"'))


def require_named(names: Iterable[str]) -> None:
    """Refuse names that are too long to show."""
    require_at_most(MOST_NAME, "characters in a name", max(map(len, names), default=0))


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
    """In the safetensors format. Tensors may share their memory; what is read back does not."""
    arrays = {n: tensor.detach().cpu().contiguous().numpy() for n, tensor in tensors.items()}
    return _within_limits(save(arrays))


def unpacked(content: bytes) -> dict[str, Tensor]:
    """Tensors from the safetensors format, each copied into its own memory.

    Memory alignment may affect rounding, and a loaded model must continue exactly as the saved one.
    """
    try:
        views = deserialize(_within_limits(content))  # type: ignore[no-untyped-call]
        return {name: _tensor(name, **view) for name, view in views}
    except LimitError as error:
        raise TensorFileError(str(error)) from error
    except SafetensorError as error:
        raise TensorFileError(f"not a safetensors file: {error}") from error


def _within_limits(content: bytes) -> bytes:
    """Refuse a header that would take long to decode: eight bytes say how long it is."""
    size = int.from_bytes(content[:8], "little")
    require_at_most(MOST_HEADER, "bytes in the header of its tensors", min(size, len(content)))
    # An object for each tensor, one around them, and perhaps one about the file.
    require_at_most(MOST_TENSORS, "tensors", content.count(b"{", 8, 8 + size) - 2)
    return content


def _tensor(name: str, dtype: str, shape: list[int], data: bytes) -> Tensor:
    if dtype not in _NUMBERS:
        raise TensorFileError(f"{name} is of type {dtype}, not one of {', '.join(_NUMBERS)}")
    if len(shape) > MOST_DIMS or max(shape, default=0) > MOST_SIZE:
        raise TensorFileError(f"{name} has more than {MOST_DIMS} dims, or one above {MOST_SIZE:,}")
    try:
        return torch.tensor(np.frombuffer(data, _NUMBERS[dtype]).reshape(shape))
    except (ValueError, RuntimeError) as error:  # such as a size of 0 times one that is too large
        raise TensorFileError(f"{name} cannot have shape {shape}: {error}") from error
