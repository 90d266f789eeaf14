"""Runs at an address that machines share: `s3://bucket/study`, `gs://…`, or `file:///…` on a mount.

The address has the layout of a directory of runs (`stored`). A machine works in a directory of its
own, and copies to the address what another one needs to go on. `claims` says who makes which run.
"""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, final

from lifelong.experiments.addresses import FilesAt
from lifelong.experiments.claims import Claims, is_claim
from lifelong.experiments.configuration import Configuration, slug
from lifelong.experiments.stored import DAMAGED, RUNS, RunPaths, StoredRun, find
from lifelong.extras import require_extra

INDICES = ("manifest.json", "progress.json", "journal.json")  # name other files: copied last
_COPIED = ""  # among the copies: the files that name others, as they were


@final
class SharedStore:
    """The runs at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._files = FilesAt(address)
        self._paths = RunPaths(Path())  # relative: where things are below the address

    def mirror(self) -> Path:
        """A directory of this machine for the runs of this address."""
        require_extra("pooch", extra="data")
        import pooch

        name = f"{slug(self.address)[-40:]}-{sha256(self.address.encode()).hexdigest()[:12]}"
        return Path(pooch.os_cache("lifelong")) / "stores" / name

    def refresh(self, out: Path) -> None:
        """Make the runs in a directory those of the address; each is copied once."""
        there = self._files.sizes(PurePosixPath(RUNS))
        for file in sorted((out / RUNS).rglob("*.json")):
            if _relative(file, out) not in there:
                file.unlink()
        known = {name: out / name for name in there if not name.name.endswith(".incoming")}
        self._files.copy({n: f for n, f in known.items() if not _has_size(f, there[n])})

    def copy_run(self, configuration: Configuration, out: Path) -> None:
        """Copy one finished run to a directory."""
        name = _posix(self._paths.run(configuration))
        self._files.copy({name: out / name})

    def find(self, configuration: Configuration, scratch: Path) -> StoredRun | None:
        """The run of this configuration, read by way of a directory of this machine."""
        for file in (self._paths.run(configuration), self._paths.pack(configuration.data)):
            with suppress(FileNotFoundError):
                self._files.copy({_posix(file): scratch / file})
        return find(RunPaths(scratch), configuration)

    def put_run(self, configuration: Configuration, out: Path) -> None:
        """Copy what a run left in a directory to the address: first its model, then the run."""
        model = self._paths.model(configuration)
        self._files.remove(_posix(model))
        for file in _files_below(out / model):
            self._files.put(_relative(file, out), file.read_bytes())
        name = self._paths.run(configuration)
        self._files.put(_posix(name), (out / name).read_bytes())

    def clear(self, configuration: Configuration) -> None:
        """Remove what a finished run does not need: how far it was, and why it failed before."""
        self._files.remove(_posix(self._paths.failed(configuration)))
        self._files.remove(_posix(self._paths.working(configuration)))

    def put_failure(self, configuration: Configuration, content: bytes) -> None:
        self._files.put(_posix(self._paths.failed(configuration)), content)

    def set_aside(self, configuration: Configuration) -> None:
        """Rename a damaged run, so that it can be made again."""
        name = _posix(self._paths.run(configuration))
        self._files.rename(name, name.with_name(f"{name.name}{DAMAGED}"))

    def copy_model(self, configuration: Configuration, out: Path) -> None:
        """Copy the model of a run to a directory, if there is one."""
        self._copy_tree(self._paths.model(configuration), out)

    def copy_working(self, configuration: Configuration, out: Path) -> None:
        """Copy what a killed run goes on from to a directory, but no claims."""
        self._copy_tree(self._paths.working(configuration), out)

    def put_working(self, configuration: Configuration, out: Path, known: dict[str, Any]) -> None:
        """Copy what another machine could go on from to the address.

        The run goes on meanwhile. Files that name others are read first and copied last, and not at
        all if they have changed: the others may then be gone. `known` are the copies made before.
        """
        top = out / self._paths.working(configuration)
        before = _indices(top)
        if not before or before == known.get(_COPIED):
            return
        files = [f for f in _files_below(top) if f.name not in INDICES]
        try:
            for file in files:
                self._put_once(_relative(file, out), file, known)
        except FileNotFoundError:
            return
        if _indices(top) == before:
            for file, content in before.items():
                self._files.put(_relative(file, out), content)
            known[_COPIED] = before
            self._forget(configuration, {_relative(f, out) for f in (*files, *before)}, known)

    def claims(self, configuration: Configuration) -> Claims:
        """Who makes a run."""
        return Claims(self._files, _posix(self._paths.working(configuration)))

    def _put_once(self, name: PurePosixPath, file: Path, known: dict[str, Any]) -> None:
        """These files do not change once they are named; so each is copied once."""
        status = file.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if known.get(str(name)) != stamp:
            self._files.put(name, file.read_bytes())
            known[str(name)] = stamp

    def _forget(
        self, configuration: Configuration, kept: set[PurePosixPath], known: dict[str, Any]
    ) -> None:
        for name in self._files.sizes(_posix(self._paths.working(configuration))):
            if name not in kept and not is_claim(name.name):
                self._files.remove(name)
                known.pop(str(name), None)

    def _copy_tree(self, below: Path, out: Path) -> None:
        names = [n for n in self._files.sizes(_posix(below)) if not is_claim(n.name)]
        with suppress(FileNotFoundError):  # removed meanwhile: there is less to go on from
            self._files.copy({name: out / name for name in names})


def _indices(top: Path) -> dict[Path, bytes]:
    """The files that name others."""
    found: dict[Path, bytes] = {}
    for file in _files_below(top):
        if file.name in INDICES:
            with suppress(FileNotFoundError):
                found[file] = file.read_bytes()
    return found


def _files_below(directory: Path) -> list[Path]:
    return sorted(
        file for file in directory.rglob("*") if file.is_file() and not file.name.startswith(".")
    )


def _has_size(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size
    except OSError:
        return False


def _relative(file: Path, out: Path) -> PurePosixPath:
    return _posix(file.relative_to(out))


def _posix(path: Path) -> PurePosixPath:
    return PurePosixPath(path.as_posix())
