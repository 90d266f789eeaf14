"""End a process at a chosen call to the file system, in the midst of a write too."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def killed_at(turn: int, act: Callable[[], object]) -> bool:
    """Do this in a process that is killed at its call with this number; whether it got there."""
    process = multiprocessing.get_context("fork").Process(target=_do, args=(turn, act))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "it failed otherwise"
    return process.exitcode != 0


def _do(turn: int, act: Callable[[], object]) -> None:
    calls = [0]

    def now() -> bool:
        calls[0] += 1
        return calls[0] == turn

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            if now():
                end()
            return call(*given, **named)

        return made

    plain_open = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        stream = plain_open(path, mode, *rest, **named)
        return _Half(stream, end) if mode == "xb" and now() else stream

    Path.open = opened  # type: ignore[method-assign, assignment]
    os.fsync = wrapped(os.fsync)
    for name in ("replace", "unlink", "mkdir"):
        setattr(Path, name, wrapped(getattr(Path, name)))
    act()


class _Half:
    """A file that takes half of what is written, and then the process ends."""

    def __init__(self, stream: Any, end: Callable[[], None]) -> None:
        self.stream, self.end = stream, end

    def write(self, content: bytes) -> None:
        self.stream.write(content[: len(content) // 2])
        self.stream.flush()
        self.end()

    def __enter__(self) -> "_Half":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
