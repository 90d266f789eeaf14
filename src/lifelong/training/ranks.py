"""The processes that learn one task together, each on its part of the rows.

All processes run the same program from the same seed. What they compute from rows differs, so every
sum over rows goes through `Ranks`: gradients, the validation loss, Equation 3, the Fisher
information. All else follows from these sums, so the networks stay equal to the bit. `ALONE` is one
process: its sums are what it has.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, final

import msgspec
import numpy as np
import torch
from torch import Tensor, distributed

from lifelong.persistence.checkpoint import Checkpoint, CheckpointError, StageSnapshot
from lifelong.persistence.files import digest, digest_of, packed, unpacked
from lifelong.training.budget import SettingError

Parallel: TypeAlias = Literal["torch.distributed"]
PARALLEL: Parallel = "torch.distributed"
_CPU = torch.device("cpu")


class RanksError(RuntimeError):
    """Processes that differ in what they must have in common; the message says in what."""


@final
@dataclass(frozen=True)
class Ranks:
    """This process among `count`, by the default group of `torch.distributed` if there are several.

    Attributes:
        device: where the group's backend takes tensors.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = _CPU

    @property
    def alone(self) -> bool:
        return self.count == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and tells watchers."""
        return self.rank == 0

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum over processes: the same bits in each."""
        if self.alone:
            return tensor
        total = tensor.detach().to(self.device, copy=True).contiguous()
        distributed.all_reduce(total)
        return total.to(tensor.device)

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over processes, all in one message."""
        if self.alone or not tensors:
            return
        flat = self.summed(torch.cat([tensor.flatten() for tensor in tensors]))
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def from_first(self, tensor: Tensor) -> Tensor:
        """What the first process has: a decision that is made once."""
        if self.alone:
            return tensor
        return self.summed(tensor if self.first else torch.zeros_like(tensor))

    def told(self, said: bytes = b"") -> bytes:
        """What the first process says."""
        length = int(self.from_first(torch.tensor(len(said))))
        content = torch.zeros(length, dtype=torch.uint8)
        if self.first and said:
            content = torch.from_numpy(np.frombuffer(said, np.uint8).copy())
        return self.from_first(content).numpy().tobytes() if length else b""

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of all processes, those of the first one first."""
        if self.alone:
            return rows
        counts = self._by_rank(len(rows))
        start = sum(counts[: self.rank])
        everything = rows.new_zeros(sum(counts), *rows.shape[1:])
        everything[start : start + len(rows)] = rows
        return self.summed(everything)

    def own(self, generator: torch.Generator, number: int) -> torch.Generator:
        """For random numbers that differ between processes: the generator itself for one process,
        else one that follows from it, from this number and from the process.
        """
        if self.alone:
            return generator
        state = digest(generator.get_state().numpy().tobytes(), f"{number} {self.rank}".encode())
        return torch.Generator().manual_seed(int(state[:15], 16))

    def require_equal(self, what: str, facts: str) -> None:
        """Refuse to go on if processes differ."""
        if self.alone:
            return
        found = self._by_rank(int(digest(facts.encode())[:15], 16))
        odd = [rank for rank, one in enumerate(found) if one != found[0]]
        if odd:
            raise RanksError(
                f"{what} differ between processes 0 and {odd[0]}; start every process with the "
                "same program, data, seed, settings, kind of machine and number of threads"
            )

    def require_same_tensors(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        if not self.alone:
            self.require_equal(what, digest_of(tensors))

    def wait(self) -> None:
        """Go on when all processes are here."""
        self.summed(torch.zeros(1))

    def _by_rank(self, number: int) -> list[int]:
        numbers = torch.zeros(self.count, dtype=torch.int64)
        numbers[self.rank] = number
        return [int(one) for one in self.summed(numbers).tolist()]


ALONE = Ranks()


def ranks_for(parallel: str | None, device: torch.device) -> Ranks:
    """The processes that a learner on this device learns with; joins their group if need be."""
    if parallel is None:
        return ALONE
    if parallel != PARALLEL:
        raise SettingError(f"parallel must be {PARALLEL!r} or None, not {parallel!r}")
    if not distributed.is_available():
        raise SettingError("parallel: this PyTorch was built without torch.distributed")
    if not distributed.is_initialized():
        _join(device)
    return Ranks(distributed.get_rank(), distributed.get_world_size(), device)


def started_by_torchrun() -> bool:
    """Whether this process is one of several that torchrun started."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def own_device(device: str | torch.device) -> str | torch.device:
    """Of several GPUs without a number, the one of this process on its machine."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if str(device) == "cuda" else device


def _join(device: torch.device) -> None:
    if not started_by_torchrun():
        raise SettingError(
            f"parallel={PARALLEL!r} takes processes that torchrun starts (torchrun "
            "--nproc-per-node 2 PROGRAM), or that call torch.distributed.init_process_group; "
            "this one is alone: leave parallel out"
        )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


@final
class SharedCheckpoint:
    """The checkpoint of several processes: the first reads and writes it, the others are told."""

    def __init__(self, own: Checkpoint | None, ranks: Ranks) -> None:
        self._own, self._ranks = own, ranks

    @classmethod
    @contextmanager
    def at(
        cls, directory: Path, about: Callable[[], Mapping[str, str]], ranks: Ranks
    ) -> Iterator[Self]:
        """Open it in the first process; what cannot be opened is an error in all."""
        with ExitStack() as held:
            own, refused = None, ""
            if ranks.first:
                try:
                    own = held.enter_context(Checkpoint.at(directory, about()))
                except CheckpointError as error:
                    refused = str(error)
            refused = ranks.told(refused.encode()).decode()
            if refused:
                raise CheckpointError(refused)
            yield cls(own, ranks)

    def turn(self, stage: str) -> StageSnapshot | None:
        """As `Checkpoint.turn`, in all processes alike."""
        found: StageSnapshot | None = None
        said = b""
        if self._own is not None:
            try:
                found = self._own.turn(stage)
                said = b"" if found is None else _in_bytes(found)
            except CheckpointError as error:
                said = _REFUSED + str(error).encode()
        said = self._ranks.told(said)
        if said.startswith(_REFUSED):
            raise CheckpointError(said.removeprefix(_REFUSED).decode())
        return found if found is not None or not said else _from_bytes(said)

    def keep(self, snapshot: Callable[[], StageSnapshot]) -> None:
        if self._own is not None:
            self._own.keep(snapshot)

    def end(self, snapshot: StageSnapshot) -> None:
        if self._own is not None:
            self._own.end(snapshot)

    def complete(self) -> None:
        if self._own is not None:
            self._own.complete()

    def remove(self) -> None:
        if self._own is not None:
            self._own.remove()


AnyCheckpoint: TypeAlias = Checkpoint | SharedCheckpoint
_REFUSED = b"!" * 16  # no snapshot begins so: its first bytes are a small number


def _in_bytes(snapshot: StageSnapshot) -> bytes:
    about = msgspec.json.encode((snapshot.stage, snapshot.ended, snapshot.facts))
    return len(about).to_bytes(8, "little") + about + packed(snapshot.tensors)


def _from_bytes(content: bytes) -> StageSnapshot:
    end = 8 + int.from_bytes(content[:8], "little")
    about: tuple[str, bool, dict[str, Any]] = msgspec.json.decode(
        content[8:end], type=tuple[str, bool, dict[str, Any]]
    )
    return StageSnapshot(*about, unpacked(content[end:]))
