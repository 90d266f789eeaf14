"""Location and download of the files of a data set.

Files are looked for in a data directory: the one given, else `$LIFELONG_DATA`, else the platform's
cache directory. A missing file is downloaded from its publisher, checked against the published
hash, and only then moved into place, so that files in place are always complete. Of an archive
only its own hash is published: what came out of it is noted beside it, as `sha256sum` writes it.
"""

import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import IO, cast, final

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from lifelong.extras import require_extra

VARIABLE = "LIFELONG_DATA"
OR_ARGUMENT = " or with data_dir="  # a command line replaces it by an option of its own, if any
# Bytes that a packed file may become: so many of each of its own, where that is more than a few
# millions (small files of a few labels shrink a lot), and so many whatever its size. Images and
# features become about 5 of 1; deflate could make 1,000.
MOST_INFLATED = 20
ALWAYS_INFLATED = 1 << 26
MOST_DATA = 1 << 33
UNCHECKED = "files not checked against the publisher's"


class DataError(ValueError):
    """Files that are absent or wrong; the message says which, what was expected, what to do."""


def require_plausible(path: Path, told: int) -> None:
    """Refuse a file whose header announces more bytes than one of its size may become."""
    size = path.stat().st_size
    most = min(max(ALWAYS_INFLATED, MOST_INFLATED * size), MOST_DATA)
    if told > most:
        raise DataError(
            f"{path}: announces {told:,} bytes of data, but a file of {size:,} bytes may hold "
            f"{most:,} at the most; get it again, or store it without compression or in parts"
        )


@final
@dataclass(frozen=True)
class Remote:
    """A file on its publisher's server. `digest` is "algorithm:hexadecimal", as published."""

    url: str
    digest: str


def data_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """The directory given, else `$LIFELONG_DATA`, else the platform's cache directory."""
    chosen = given or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(_pooch().os_cache("lifelong"))


def present(directory: Path, *names: str) -> Path | None:
    """The first of these names that is a file in the directory."""
    return next((directory / name for name in names if (directory / name).is_file()), None)


def fetch(data_set: str, directory: Path, name: str, remote: Remote) -> Path:
    """Download one file to `directory / name`, unless it exists."""
    if found := present(directory, name):
        return found
    return _download(data_set, directory, name, remote, [name])


def fetch_archive(
    data_set: str, directory: Path, members: Mapping[str, str], remote: Remote
) -> None:
    """Download a tar or zip archive and extract `members`: name in the directory → member.

    Members are read one by one and by name, so that an archive cannot write anywhere else. The
    archive is removed afterwards, unless the user put it there.
    """
    if all((directory / name).is_file() for name in members):
        return
    name = Path(remote.url).name
    provided = present(directory, name)  # by the user, who may want to keep it
    if provided is not None:
        _require_published(data_set, provided, remote, list(members))
    archive = provided or _download(data_set, directory, name, remote, list(members))
    try:
        _unpack(archive, directory, members)
        _note(directory, members, remote)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(
            f"{data_set}: cannot take {list(members)} from {archive}: {error}"
        ) from error
    finally:
        if not provided:
            archive.unlink(missing_ok=True)


def are_published(directory: Path, names: Iterable[str], remote: Remote) -> bool:
    """Whether files are, by their hashes, what came out of their publisher's archive."""
    noted = _noted(directory, remote)
    return all(noted.get(name) == _digest_of(directory / name) for name in names)


def _note(directory: Path, names: Iterable[str], remote: Remote) -> None:
    """Write down the hashes of what was taken from an archive that had the published hash."""
    digests = _noted(directory, remote) | {name: _digest_of(directory / name) for name in names}
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()]
    _notes(directory, remote).write_text("".join(lines), encoding="utf-8")


def _noted(directory: Path, remote: Remote) -> dict[str, str]:
    notes = _notes(directory, remote)
    if not notes.is_file():
        return {}
    with readable(notes):
        lines = notes.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _notes(directory: Path, remote: Remote) -> Path:
    return directory / f"{Path(remote.url).name}.sha256"


def _digest_of(path: Path) -> str:
    with readable(path):
        told = path.stat()
        return _digest(path, told.st_mtime_ns, told.st_size)


@lru_cache(maxsize=64)
def _digest(path: Path, _written: int, _size: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _require_published(data_set: str, archive: Path, remote: Remote, wanted: list[str]) -> None:
    """Refuse an archive that is not its publisher's: who brought it may not have looked."""
    algorithm, _, published = remote.digest.partition(":")
    with readable(archive), archive.open("rb") as stream:
        found = hashlib.file_digest(stream, algorithm).hexdigest()
    if found != published:
        raise DataError(
            f"{data_set}: {archive} has the {algorithm} {found}, but the published one is "
            f"{published}; remove it, so that it is downloaded, or put {', '.join(wanted)} in "
            f"{archive.parent} yourself"
        )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block into a `DataError` that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); put the file there, or mend it"
        ) from error


def absent(data_set: str, directory: Path, names: list[str], why: str) -> DataError:
    """The error for files that are neither present nor downloadable."""
    return DataError(
        f"{data_set} needs {', '.join(names)} in {directory}, {why}. Put the files there, or name "
        f"another data directory in ${VARIABLE}{OR_ARGUMENT}. "
        "The data set 'digits' needs no files."
    )


def _download(data_set: str, directory: Path, name: str, remote: Remote, wanted: list[str]) -> Path:
    pooch = _pooch()
    try:
        require_writable(directory)
    except OSError as error:
        raise DataError(
            f"{data_set}: cannot write downloaded files to {directory} ({error}). Name a directory "
            f"that can be written in ${VARIABLE}{OR_ARGUMENT}."
        ) from error
    try:
        with _Bar(name) as bar:
            got = pooch.retrieve(remote.url, remote.digest, name, directory, progressbar=bar)
    except ValueError as error:
        if "hash" not in str(error):
            raise
        raise DataError(
            f"{data_set}: {remote.url} does not have the published hash {remote.digest}, so it was "
            f"not kept. Try again later, or put {', '.join(wanted)} in {directory} yourself. "
            f"({error})"
        ) from error
    except OSError as error:  # includes the exceptions of requests
        why = f"and could not be downloaded from {remote.url}: {_reason(error)}"
        raise absent(data_set, directory, wanted, why) from error
    return Path(got)


def _reason(error: OSError) -> str:
    """Why a download failed; of a chain of causes, as libraries tell it, only what it means."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered with status {status}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "Timeout" in kinds or "TimeoutError" in kinds:
        return "the server did not answer in time"
    if "RequestException" in kinds or "ConnectionError" in kinds:
        return "the server cannot be reached from here"
    return error.strerror or str(error)


def _pooch() -> ModuleType:
    require_extra("pooch", extra="data")
    import pooch

    pooch.get_logger().setLevel("WARNING")  # a progress bar tells what it would log
    return cast(ModuleType, pooch)


def require_writable(directory: Path) -> None:
    """Raise `OSError` early if nothing can be written to the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def _unpack(archive: Path, directory: Path, members: Mapping[str, str]) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            _take(archive, zipped.open, directory, members)
        return
    with tarfile.open(archive) as tarred:

        def open_member(member: str) -> IO[bytes]:
            opened = tarred.extractfile(member)
            if opened is None:
                raise KeyError(f"{member} is not a file")
            return opened

        _take(archive, open_member, directory, members)


def _take(
    archive: Path,
    open_member: Callable[[str], IO[bytes]],
    directory: Path,
    members: Mapping[str, str],
) -> None:
    for name, member in members.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with open_member(member) as source, tempfile.TemporaryDirectory(dir=directory) as aside:
            partial = Path(aside) / place.name
            with partial.open("wb") as target:
                shutil.copyfileobj(_Limited(source, archive), target)
            partial.replace(place)


@final
class _Limited:
    """A member of an archive that may not become more than one of its size plausibly does."""

    def __init__(self, source: IO[bytes], archive: Path) -> None:
        self._source, self._archive, self._read = source, archive, 0

    def read(self, size: int = -1) -> bytes:
        content = self._source.read(size)
        self._read += len(content)
        require_plausible(self._archive, self._read)
        return content


@final
class _Bar:
    """A progress bar with the interface that pooch expects."""

    def __init__(self, name: str) -> None:
        self._progress = Progress(
            TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), transient=True
        )
        self._task = self._progress.add_task(name, total=None)
        self.total: float | None = None

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, size: int) -> None:
        self._progress.update(self._task, total=self.total, advance=size)

    def reset(self) -> None:
        """Nothing to do: pooch calls this before the last update."""

    def close(self) -> None:
        """Nothing to do: the `with` block closes the bar, also if the download fails."""
