"""What each dim of a value runs over: units of a layer, a product of such, or a concatenation.

Every operation says which dims run over the same units. A dim is a *leaf*, a *product* of dims
(after a view) or a *sum* of dims (after a concatenation). A leaf that nobody fixed can grow.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, final


class Mismatch(Exception):
    """Dims that cannot be followed through an operation; the message says why."""


@final
class Dim:
    """A dim of a value, of a tensor or of several of them.

    Attributes:
        fixed: why its size cannot change; None if it can. Only of leaves.
    """

    def __init__(
        self,
        size: int,
        kind: Literal["leaf", "product", "sum"] = "leaf",
        parts: Sequence["Dim"] = (),
        fixed: str | None = None,
    ) -> None:
        self._size, self._kind, self._parts, self._fixed = size, kind, list(parts), fixed
        self._same_as: Dim | None = None

    @property
    def root(self) -> "Dim":
        """The dim that stands for all that were found to be the same."""
        dim = self
        while dim._same_as is not None:
            dim = dim._same_as
        return dim

    @property
    def size(self) -> int:
        return self.root._size

    @property
    def kind(self) -> Literal["leaf", "product", "sum"]:
        return self.root._kind

    @property
    def parts(self) -> list["Dim"]:
        return [part.root for part in self.root._parts]

    @property
    def fixed(self) -> str | None:
        return self.root._fixed

    def leaves(self) -> Iterator["Dim"]:
        root = self.root
        if root._kind == "leaf":
            yield root
        for part in root._parts:
            yield from part.leaves()

    def fix(self, why: str) -> None:
        """Its size never changes; the first reason is kept."""
        for leaf in self.leaves():
            leaf._fixed = leaf._fixed or why

    def free(self) -> bool:
        """Whether a part of it can grow."""
        return any(leaf._fixed is None for leaf in self.leaves())

    def become(self, other: "Dim") -> None:
        """From now on the same as `other`."""
        if self.root is not other.root:
            self.root._same_as = other.root

    def divide(self, kind: Literal["product", "sum"], sizes: Sequence[int]) -> None:
        """Turn a leaf into a product or sum of leaves of these sizes."""
        root = self.root
        root._kind, root._parts = kind, [Dim(size, fixed=root._fixed) for size in sizes]


def constant(size: int, why: str = "its size does not depend on units") -> Dim:
    return Dim(size, fixed=why)


def product(dims: Sequence[Dim]) -> Dim:
    """All pairs, the last dim running fastest; sizes of 1 are left out."""
    flat = [
        part
        for dim in dims
        for part in (dim.parts if dim.kind == "product" else [dim.root])
        if part.size != 1
    ]
    if len(flat) == 1:
        return flat[0]
    return Dim(math.prod(part.size for part in flat), "product", flat) if flat else constant(1)


def concatenation(dims: Sequence[Dim]) -> Dim:
    flat = [part for dim in dims for part in (dim.parts if dim.kind == "sum" else [dim.root])]
    return flat[0] if len(flat) == 1 else Dim(sum(part.size for part in flat), "sum", flat)


def unify(left: Dim, right: Dim, why: str) -> None:
    """Both run over the same units; where their structures differ they are fixed, and `why`."""
    left, right = left.root, right.root
    if left is right:
        return
    if left.size != right.size:
        raise Mismatch(f"sizes {left.size} and {right.size} do not match")
    if "leaf" in (left.kind, right.kind):
        leaf, other = (left, right) if left.kind == "leaf" else (right, left)
        if leaf.fixed:
            other.fix(leaf.fixed)
        leaf.become(other)
    elif left.kind == right.kind and (pairs := _aligned(left, right)) is not None:
        for one, another in pairs:
            unify(one, another, why)
        left.become(right)
    elif not _parts_of_product(left, right, why):
        left.fix(why)
        right.fix(why)


def _parts_of_product(left: Dim, right: Dim, why: str) -> bool:
    """A concatenation of n equal parts against a product that begins with n: queries, keys and
    values against (3, heads, size).
    """
    total, factors = (left, right) if left.kind == "sum" else (right, left)
    count = len(total.parts)
    if (total.kind, factors.kind) != ("sum", "product") or factors.parts[0].size != count:
        return False
    if any(part.size * count != total.size for part in total.parts):
        return False
    for part in total.parts:
        unify(part, product(factors.parts[1:]), why)
    total.become(factors)
    return True


def _aligned(left: Dim, right: Dim) -> list[tuple[Dim, Dim]] | None:
    """Pairs of parts; a leaf is divided where the other side is finer. None if that cannot be."""
    kind = left.kind
    assert kind != "leaf"
    ones, others = left.parts[::-1], right.parts[::-1]
    pairs: list[tuple[Dim, Dim]] = []
    while ones and others:
        one, other = ones.pop().root, others.pop().root
        if one.size == other.size:
            pairs.append((one, other))
            continue
        large, small = (one, other) if one.size > other.size else (other, one)
        mine, theirs = (ones, others) if large is one else (others, ones)
        if kind == "product" and large.size % small.size:
            return None
        if large.kind == "leaf":
            rest = large.size // small.size if kind == "product" else large.size - small.size
            large.divide(kind, [small.size, rest])
        if large.kind != kind:
            return None
        mine.extend(large.parts[::-1])
        theirs.append(small)
    return None if ones or others else pairs


def viewed(dims: Sequence[Dim], sizes: Sequence[int]) -> list[Dim]:
    """The dims of a view with these sizes: factors are regrouped, and a leaf is divided where a
    boundary runs through it.
    """
    factors = [part for dim in dims for part in (dim.parts if dim.kind == "product" else [dim])]
    left = [factor.root for factor in factors if factor.size != 1][::-1]
    return [product(list(_taken(left, size))) for size in sizes]


def _taken(left: list[Dim], size: int) -> Iterator[Dim]:
    have = 1
    while have < size:
        if not left:
            raise Mismatch("a view of another size")
        dim, need = left.pop().root, size // have
        if dim.kind == "product":
            left.extend(dim.parts[::-1])
        elif need % dim.size == 0:
            have *= dim.size
            yield dim
        elif dim.size % need:
            raise Mismatch("a view whose boundaries run through units")
        elif dim.kind == "sum":
            left.append(_as_product(dim, need))
        else:
            dim.divide("product", [need, dim.size // need])
            left.append(dim)


def _as_product(dim: Dim, count: int) -> Dim:
    """A concatenation of `count` equal parts as a product."""
    first, *rest = dim.parts
    if len(rest) + 1 != count or any(part.size != first.size for part in rest):
        raise Mismatch("a view whose boundaries run through a concatenation")
    for part in rest:
        unify(first, part, "equal parts of a concatenation are viewed as one dim")
    whole = product([constant(count, "number of parts"), first])
    dim.become(whole)
    return whole
