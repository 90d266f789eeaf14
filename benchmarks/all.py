"""All benchmarks of speed and memory, in one table.

    make bench             # about ten minutes
    make bench FULL=1      # with Permuted MNIST's ten tasks of all images: a quarter of an hour

The figures go to benchmarks/results.json. Each is a ratio of two things that were measured in turns
in this process, with one thread. Where something cannot be measured (data or a library is missing)
it says so. Figures of the full sequence stay there until they are measured again.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial

import baselines
import family
import growth
import heads
import memory
import modules
import prediction
import sequence
import steps
import torch
from side_by_side import Figure, keep, publish


def parts(full: bool) -> dict[str, Callable[[], list[Figure]]]:
    """A step, then what is made of steps, then what the other methods cost."""
    return {
        "steps and selective retraining": steps.figures,
        "heads": heads.figures,
        "prediction": prediction.figures,
        "growth of cost": growth.figures,
        "whole sequence": partial(sequence.figures, full),
        "memory": memory.figures,
        "baselines": baselines.figures,
        "traced modules": modules.figures,
        "family": family.figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="Permuted MNIST, ten tasks")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # solvers that stop before their tolerance; Avalanche's
    found: list[Figure] = []
    for name, measure in parts(parser.parse_args().full).items():
        start = time.perf_counter()
        found += measure()
        keep(found)  # whatever becomes of the rest
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    publish(found)


if __name__ == "__main__":
    main()
