"""Small runs of every method whose every number is stored, so that a change that should not change
any number can show that it does not.

`python tests/golden/runs.py` compares with the stored numbers to the bit, `--close` up to rounding,
as `tests/test_golden.py` does; `--write` stores them anew, for a change that is meant to change
them. Small differences between processors would grow: a choice that is nearly a tie falls the other
way. The arithmetic is therefore the plainest that every processor has.
"""

import os
import sys

if (
    __name__ == "__main__"
):  # before torch is there; not where it is imported, for those started there
    os.environ |= {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

FILE = Path(__file__).with_name("numbers.safetensors")
sys.path.insert(0, str(FILE.parent.parent))

from builders import (  # noqa: E402
    ARCHITECTURES,
    BUDGET,
    KINDS,
    answers,
    contents,
    inputs_for,
    stream_for,
)
from lifelong.learners.base import Learner  # noqa: E402
from lifelong.learners.baselines import Joint  # noqa: E402
from lifelong.learners.den import DEN  # noqa: E402
from lifelong.learners.registry import METHODS, Method  # noqa: E402

GROWS = {"k": 2, "tau": 0.0, "initial_width": 0.5, "min_improvement": 0.0, "max_new_units": 2}


def golden() -> dict[str, Tensor]:
    """All tensors, predictions and records, by method, network and name."""
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    return {
        f"{method.name}/{network}/{name}": tensor
        for method in METHODS.values()
        for network in ARCHITECTURES
        for name, tensor in _numbers(method, network)
    }


def _numbers(method: Method, network: str) -> Iterator[tuple[str, Tensor]]:
    learner = _learned(method, network)
    yield from contents(learner).items()
    for record in learner.records:
        yield (
            f"record/{record.number}/stages",
            _numeric([[stage.loss, stage.steps] for stage in record.stages]),
        )
        for group, events in record.groups.items():
            counted = [events.units, events.selected, events.added, events.dropped, events.split]
            yield f"record/{record.number}/{group}", _numeric([*counted, *events.drift])
    with tempfile.TemporaryDirectory() as directory:
        learner.save(directory)
        loaded = method.learner.load(directory)
    x = inputs_for(ARCHITECTURES[network](), 5)
    for task, answer in answers(loaded, x).items():
        assert torch.equal(answer, answers(learner, x)[task])
        yield f"answer/{task}", answer


def _learned(method: Method, network: str) -> Learner:
    grows = GROWS if method.name in ("DEN", "DEN-Finetune", "DEN-No-Stamp") else {}
    learner = method.make(ARCHITECTURES[network](), budget=BUDGET, seed=7, changes=grows)
    tasks = stream_for(ARCHITECTURES[network](), *KINDS, seed=7)
    if isinstance(learner, Joint):
        learner.learn_together(tasks)
        return learner
    for task in tasks:
        learner.learn(task)
    if method.finetunes:
        assert isinstance(learner, DEN)
        learner.finetune(tasks)
    return learner


def _numeric(numbers: list) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def differences(
    found: dict[str, Tensor], stored: dict[str, Tensor], same: Callable[[Tensor, Tensor], bool]
) -> list[str]:
    """Names of what is not the same."""
    names = sorted({*found, *stored})
    return [
        name
        for name in names
        if name not in found or name not in stored or not same(found[name], stored[name])
    ]


def close(found: Tensor, stored: Tensor) -> bool:
    return found.shape == stored.shape and torch.allclose(found, stored, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    now = golden()
    if "--write" in sys.argv:
        save_file({name: tensor.clone().contiguous() for name, tensor in now.items()}, FILE)
        print(f"{len(now)} tensors written to {FILE}")
    else:
        same, how = (close, "close") if "--close" in sys.argv else (torch.equal, "equal to the bit")
        wrong = differences(now, load_file(FILE), same)
        print("\n".join(wrong) or f"all {len(now)} tensors are {how}")
        sys.exit(bool(wrong))
