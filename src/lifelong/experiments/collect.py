"""The stored runs of a recipe, for figures and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from lifelong.experiments.recipes import Entry, Recipe
from lifelong.experiments.stored import RunPaths, StoredError, failure, find, read_pack
from lifelong.reproduction.measured import Measured


@final
@dataclass(frozen=True)
class Collected:
    """The runs found; of missing and damaged ones, a description."""

    measured: tuple[Measured, ...]
    missing: tuple[str, ...]
    damaged: tuple[str, ...]


def collect(
    recipe: Recipe,
    out: Path,
    *,
    seeds: Sequence[int],
    methods: Sequence[str] = (),
    parts: Sequence[str] = (),
) -> Collected:
    """Read every stored run of a recipe; damaged files are listed and left in place."""
    places = RunPaths(out)
    measured: list[Measured] = []
    missing: list[str] = []
    damaged = list(read_pack(places.pack(recipe.data.name)).damaged)
    for entry in recipe.chosen(methods, parts):
        for seed in seeds:
            configuration = recipe.configuration(entry, seed)
            try:
                stored = find(places, configuration)
            except StoredError as error:
                damaged.append(str(error))
                continue
            if stored is not None:
                plain = _is_plain(recipe, entry)
                measured.append(
                    Measured(
                        entry.method, entry.label, entry.part, plain, stored.run, entry.published
                    )
                )
                continue
            failed = failure(places, configuration)
            why = "" if failed is None else f": failed, {failed.error}"
            missing.append(f"{recipe.label(entry, seed)}{why}")
    return Collected(tuple(measured), tuple(missing), tuple(damaged))


def _is_plain(recipe: Recipe, entry: Entry) -> bool:
    """The first entry of a method is the one on the base network and all tasks."""
    return entry == next(each for each in recipe.entries if each.method == entry.method)
