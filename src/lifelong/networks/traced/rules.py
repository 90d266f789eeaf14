"""What each operation does to the dims of its arguments: one rule per operation.

A rule takes an `Operation` and returns the dims of its result. It says which dims run over the same
units (`same`), which cannot change (`fix`), what a weight reads (`reads`), and which arguments are
sizes that follow the widths (`resize`). An operation without a rule fixes the dims that it touches.

`register_rule` adds a rule, and so does an entry point of the group `lifelong.rules`:

    def atan(operation: Operation) -> Dims:
        return list(operation["self"])

    register_rule(Rule("aten.atan", atan))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

from lifelong.networks.layout import NetworkError
from lifelong.networks.traced import program
from lifelong.networks.traced.dims import (
    Dim,
    Mismatch,
    concatenation,
    constant,
    product,
    unify,
    viewed,
)
from lifelong.plugins import Registry

Dims: TypeAlias = list[Dim]
Result: TypeAlias = Dims | list[Dims]
Kind: TypeAlias = Literal["weight", "bias", "scale", "buffer"]


@final
@dataclass(eq=False)
class Operation:
    """One call in a traced module, as its rule sees it.

    Attributes:
        name: such as "aten.linear".
        where: name of the module that made the call, for messages.
        arguments: by name, with defaults filled in; a tensor is its list of dims, a list of
            tensors is a list of those, anything else is as it was called.
        tensors: by argument, the name of the parameter or buffer that was passed.
        shape: of the result, or one for each of several results.
        batch: the dim of the rows.
    """

    name: str
    where: str
    arguments: Mapping[str, Any]
    tensors: Mapping[str, str]
    shape: list[Any]
    batch: Dim
    sizes: dict[str, Dim | list[Dim]]
    kinds: dict[str, Kind]
    read: dict[str, set[int]]
    cost: list[list[Dim]]
    starts: dict[str, float]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def same(self, left: Dim, right: Dim) -> None:
        """Both dims run over the same units."""
        unify(left, right, f"{self.where}: combines dims of different structure")

    def fix(self, dim: Dim, why: str) -> None:
        dim.fix(f"{self.where}: {why}")

    def constant(self, size: int) -> Dim:
        return constant(size)

    def resize(self, argument: str, dims: Dim | list[Dim]) -> None:
        """The argument is the size of this dim, or a list of sizes."""
        self.sizes[argument] = dims

    def kind(self, argument: str, kind: Kind) -> None:
        """The tensor passed as this argument is of this kind."""
        if argument in self.tensors:
            self.kinds.setdefault(self.tensors[argument], kind)

    def starts_at(self, argument: str, value: float) -> None:
        """Entries of the tensor passed as this argument that are new have this value."""
        if argument in self.tensors:
            self.starts.setdefault(self.tensors[argument], value)

    def reads(self, argument: str, dim: int) -> None:
        """This dim of the tensor runs over the units that are read, not those that compute."""
        self.kind(argument, "weight")
        if argument in self.tensors:
            self.read.setdefault(self.tensors[argument], set()).add(dim)

    def costs(self, *dims: Dim) -> None:
        """The call takes as many multiply-adds as the product of these sizes."""
        self.cost.append(list(dims))


@final
@dataclass(frozen=True)
class Rule:
    """The rule of an operation, in all its overloads; its name is such as "aten.linear"."""

    name: str
    apply: Callable[[Operation], Result]


RULES: Registry[Rule] = Registry(
    "rule", Rule, NetworkError, added=lambda row: program.registered.add(row.name)
)


def register_rule(rule: Rule) -> None:
    """Add a rule for an operation that has none."""
    RULES.add(rule)


def _rule(*names: str) -> Callable[[Callable[[Operation], Result]], Callable[[Operation], Result]]:
    def add(apply: Callable[[Operation], Result]) -> Callable[[Operation], Result]:
        for name in names:
            RULES.add(Rule(f"aten.{name}", apply))
        return apply

    return add


ELEMENTWISE = (
    *("relu", "relu_", "relu6", "relu6_", "gelu", "silu", "silu_", "hardtanh", "hardtanh_", "mish"),
    *("hardswish", "hardswish_", "hardsigmoid", "hardsigmoid_", "sigmoid", "sigmoid_", "tanh"),
    *("tanh_", "leaky_relu", "leaky_relu_", "elu", "elu_", "selu", "celu", "softplus", "softsign"),
    *("dropout", "dropout_", "feature_dropout", "bernoulli_", "rand_like", "randn_like"),
    *("empty_like", "zeros_like", "ones_like", "contiguous", "clone", "alias", "detach", "neg"),
    *("exp", "log", "abs", "sqrt", "rsqrt", "square", "reciprocal", "erf", "sin", "cos", "sign"),
    *("to", "_to_copy", "lift_fresh_copy", "clamp", "clamp_", "clamp_min", "clamp_max"),
    *("logical_not", "bitwise_not", "isnan", "isinf", "log_sigmoid", "softshrink", "type_as"),
)
TOGETHER = (
    *("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "rsub", "pow", "maximum"),
    *("minimum", "where", "eq", "ne", "lt", "gt", "le", "ge", "masked_fill", "masked_fill_"),
    *("logical_and", "logical_or", "addcmul", "lerp", "__and__", "__or__"),
)


@_rule(*ELEMENTWISE)
def elementwise(operation: Operation) -> Dims:
    return list(_first_tensor(operation))


def _first_tensor(operation: Operation) -> Dims:
    return next(a for a in operation.arguments.values() if _is_tensor(a))


def _is_tensor(argument: object) -> bool:
    """Dims of a tensor; of one without dims too, which is an empty list."""
    return isinstance(argument, list) and all(isinstance(dim, Dim) for dim in argument)


@_rule(*TOGETHER)
def together(operation: Operation) -> Dims:
    """Entry by entry, with dims of size 1 spread over the others."""
    shape = operation.shape
    dims: list[Dim | None] = [None] * len(shape)
    multiplies = operation.name in ("aten.mul", "aten.mul_", "aten.div", "aten.addcmul")
    for name, given in operation.arguments.items():
        if not _is_tensor(given) or isinstance(given, tuple):
            continue
        operation.kind(name, "scale" if multiplies else "bias")
        for place, dim in enumerate(given, len(shape) - len(given)):
            if dim.size == 1 and shape[place] != 1:
                operation.fix(dim, "one number is spread over others")
                continue
            known = dims[place]
            if known is None:
                dims[place] = dim
            else:
                operation.same(known, dim)
    return [constant(1) if dim is None else dim for dim in dims]


@_rule("linear")
def linear(operation: Operation) -> Dims:
    x, weight = operation["input"], operation["weight"]
    if len(weight) != 2:
        raise Mismatch("a product with a vector")
    operation.same(x[-1], weight[1])
    operation.reads("weight", 1)
    _bias(operation, weight[0])
    operation.costs(*x[:-1], *weight)
    return [*x[:-1], weight[0]]


def _bias(operation: Operation, units: Dim) -> None:
    operation.kind("bias", "bias")
    if operation["bias"] is not None:
        operation.same(units, operation["bias"][0])


@_rule("conv1d", "conv2d", "conv3d")
def convolution(operation: Operation) -> Dims:
    x, weight, groups = operation["input"], operation["weight"], operation["groups"]
    operation.kind("weight", "weight")
    for dim in weight[2:]:
        operation.fix(dim, "the kernel of a convolution")
    _bias(operation, weight[0])
    if groups == 1:
        operation.same(x[1], weight[1])
        operation.reads("weight", 1)
    else:
        _grouped(operation, groups)
    places = [constant(size) for size in operation.shape[2:]]
    operation.costs(x[0], *places, *weight)
    return [x[0], weight[0], *places]


@_rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution(operation: Operation) -> Dims:
    x, weight = operation["input"], operation["weight"]
    if operation["groups"] != 1:
        raise Mismatch("a transposed convolution with groups")
    for dim in weight[2:]:
        operation.fix(dim, "the kernel of a convolution")
    operation.same(x[1], weight[0])
    operation.reads("weight", 0)
    _bias(operation, weight[1])
    operation.costs(*x[:1], *x[2:], *weight)  # every place of the inputs is spread over a kernel
    return [x[0], weight[1], *(constant(size) for size in operation.shape[2:])]


def _grouped(operation: Operation, groups: int) -> None:
    """A unit is a group of channels with all that it computes."""
    x, weight, number = operation["input"], operation["weight"], Dim(groups)
    operation.fix(weight[1], "the channels inside of a group")
    for dim in (x[1], weight[0]):
        inside = constant(dim.size // groups, f"{operation.where}: the channels inside of a group")
        operation.same(product([number, inside]), dim)
    operation.resize("groups", number)


@_rule("prelu")
def prelu(operation: Operation) -> Dims:
    x, weight = operation["self"], operation["weight"]
    operation.kind("weight", "bias")  # as a bias it is no reason to read or to drop a unit
    operation.starts_at("weight", 0.25)
    if weight[0].size > 1:
        operation.same(x[1], weight[0])
    else:
        operation.fix(weight[0], "one slope for all units")
    return list(x)


@_rule("glu")
def glu(operation: Operation) -> Dims:
    x = list(operation["self"])
    place = operation["dim"] % len(x)
    inside = Dim(operation.shape[place])
    count = constant(2, f"{operation.where}: values and gates")
    operation.same(product([count, inside]), x[place])
    x[place] = inside
    return x


@_rule("batch_norm")
def batch_norm(operation: Operation) -> Dims:
    x = operation["input"]
    for place, dim in enumerate(x):
        if place != 1:
            operation.fix(dim, "normalised over it")
    _normalised(operation, x[1:2])
    for name, start in (("running_mean", 0.0), ("running_var", 1.0)):
        operation.kind(name, "buffer")
        operation.starts_at(name, start)
        if operation[name] is not None:
            operation.same(x[1], operation[name][0])
    return list(x)


def _normalised(operation: Operation, over: Sequence[Dim]) -> None:
    for name, kind in (("weight", "scale"), ("bias", "bias")):
        operation.kind(name, kind)  # type: ignore[arg-type]
        for dim, own in zip(over, operation[name] or (), strict=False):
            operation.same(dim, own)


@_rule("layer_norm", "rms_norm")
def layer_norm(operation: Operation) -> Dims:
    x = operation["input"]
    last = x[-len(operation["normalized_shape"]) :]
    for dim in last:
        operation.fix(dim, "layer normalisation over it")
    operation.kind("weight", "scale")
    operation.kind("bias", "bias")
    for name in ("weight", "bias"):
        for dim, own in zip(last, operation.arguments.get(name) or (), strict=False):
            operation.same(dim, own)
    return list(x)


@_rule("group_norm")
def group_norm(operation: Operation) -> Dims:
    x, count = operation["input"], operation["num_groups"]
    number = Dim(count)
    inside = constant(x[1].size // count, f"{operation.where}: the channels inside of a group")
    operation.same(product([number, inside]), x[1])
    _normalised(operation, x[1:2])
    operation.resize("num_groups", number)
    return list(x)


@_rule("instance_norm")
def instance_norm(operation: Operation) -> Dims:
    _normalised(operation, operation["input"][1:2])
    return list(operation["input"])


@_rule("embedding")
def embedding(operation: Operation) -> Dims:
    weight = operation["weight"]
    operation.kind("weight", "weight")
    operation.fix(weight[0], "the vocabulary")
    return [*operation["indices"], weight[1]]


@_rule(
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d", "pixel_unshuffle"),
)
def pooling(operation: Operation) -> Dims:
    if isinstance(operation.shape[0], list) or "shuffle" in operation.name:
        raise Mismatch("several results")
    x = _first_tensor(operation)
    return [*x[:2], *map(constant, operation.shape[2:])]


@_rule("constant_pad_nd", "pad")
def padded(operation: Operation) -> Dims:
    """Places are added around positions; around units that would be new places without units."""
    x = _first_tensor(operation)
    return [
        dim if dim.size == size else _cut(operation, dim, size)
        for dim, size in zip(x, operation.shape, strict=True)
    ]


def _cut(operation: Operation, dim: Dim, size: int) -> Dim:
    operation.fix(dim, "cut or filled up at a constant")
    return constant(size)


@_rule("view", "reshape", "_unsafe_view")
def view(operation: Operation) -> Dims:
    dims = viewed(_first_tensor(operation), operation.shape)
    operation.resize("size" if "size" in operation.arguments else "shape", dims)
    return dims


@_rule("flatten")
def flatten(operation: Operation) -> Dims:
    return viewed(_first_tensor(operation), operation.shape)


@_rule("unflatten")
def unflatten(operation: Operation) -> Dims:
    x, sizes = operation["self"], operation["sizes"]
    dims = viewed(x, operation.shape)
    place = operation["dim"] % len(x)
    operation.resize("sizes", dims[place : place + len(sizes)])
    return dims


@_rule("expand", "expand_as")
def expand(operation: Operation) -> Dims:
    x, shape = operation["self"], operation.shape
    lead = len(shape) - len(x)
    dims = []
    for place, size in enumerate(shape):
        own = x[place - lead] if place >= lead else None
        if own is not None and own.size == size:
            dims.append(own)
            continue
        if own is not None:
            operation.fix(own, "one number is spread over others")
        dims.append(operation.batch if size == operation.batch.size else constant(size))
    if "size" in operation.arguments:
        operation.resize("size", dims)
    return dims


@_rule("new_empty", "new_zeros", "new_ones", "new_full")
def new(operation: Operation) -> Dims:
    batch = operation.batch
    dims = [batch if size == batch.size else constant(size) for size in operation.shape]
    operation.resize("size", dims)
    return dims


@_rule("transpose", "swapaxes")
def transpose(operation: Operation) -> Dims:
    dims = list(operation["self"])
    one, other = operation["dim0"], operation["dim1"]
    dims[one], dims[other] = dims[other], dims[one]
    return dims


@_rule("permute")
def permute(operation: Operation) -> Dims:
    return [operation["self"][place] for place in operation["dims"]]


@_rule("t")
def transposed(operation: Operation) -> Dims:
    return list(operation["self"][::-1])


@_rule("unsqueeze")
def unsqueeze(operation: Operation) -> Dims:
    dims = list(operation["self"])
    dims.insert(operation["dim"] % (len(dims) + 1), constant(1))
    return dims


@_rule("squeeze")
def squeeze(operation: Operation) -> Dims:
    x = operation["self"]
    given = operation.arguments.get("dim", list(range(len(x))))
    gone = {place % len(x) for place in (given if isinstance(given, list | tuple) else [given])}
    return [dim for place, dim in enumerate(x) if not (place in gone and dim.size == 1)]


@_rule("select")
def select(operation: Operation) -> Dims:
    x = list(operation["self"])
    operation.fix(x.pop(operation["dim"] % len(x)), "one place of it is chosen")
    return x


@_rule("slice")
def slice_(operation: Operation) -> Dims:
    x = list(operation["self"])
    place = operation["dim"] % len(x)
    if x[place].size != operation.shape[place]:
        x[place] = _cut(operation, x[place], operation.shape[place])
    return x


@_rule("cat", "concat")
def cat(operation: Operation) -> Dims:
    parts: list[Dims] = operation["tensors"]
    along = operation["dim"] % len(operation.shape)
    first = parts[0]
    for part in parts[1:]:
        for place, (one, other) in enumerate(zip(first, part, strict=True)):
            if place != along:
                operation.same(one, other)
    joined = concatenation([part[along] for part in parts])
    return [joined if place == along else dim for place, dim in enumerate(first)]


@_rule("stack")
def stack(operation: Operation) -> Dims:
    parts: list[Dims] = operation["tensors"]
    for part in parts[1:]:
        for one, other in zip(parts[0], part, strict=True):
            operation.same(one, other)
    dims = list(parts[0])
    dims.insert(operation["dim"] % len(operation.shape), constant(len(parts)))
    return dims


@_rule("chunk")
def chunk(operation: Operation) -> list[Dims]:
    return _equal_parts(operation)


def _equal_parts(operation: Operation) -> list[Dims]:
    """The dim is a number of parts times what each of them runs over.

    That ties the parts to each other, as the halves of a gated unit are.
    """
    x, shapes = operation["self"], operation.shape
    place = operation["dim"] % len(x)
    if len({shape[place] for shape in shapes}) > 1:
        raise Mismatch("parts of different sizes")
    inside = Dim(shapes[0][place])
    count = constant(len(shapes), f"{operation.where}: the number of parts")
    operation.same(product([count, inside]), x[place])
    return [[inside if at == place else dim for at, dim in enumerate(x)] for _ in shapes]


@_rule("split", "split_with_sizes")
def split(operation: Operation) -> list[Dims]:
    parts = _equal_parts(operation)
    place = operation["dim"] % len(operation["self"])
    sizes = [part[place] for part in parts]
    name = "split_size" if "split_size" in operation.arguments else "split_sizes"
    operation.resize(name, sizes[0] if isinstance(operation[name], int) else sizes)
    return parts


@_rule("unbind")
def unbind(operation: Operation) -> list[Dims]:
    x = operation["self"]
    place = operation["dim"] % len(x)
    operation.fix(x[place], "taken apart")
    return [[*x[:place], *x[place + 1 :]] for _ in operation.shape]


@_rule("mean", "sum", "amax", "amin", "var", "std")
def reduction(operation: Operation) -> Dims:
    x = operation["self"]
    given = operation.arguments.get("dim")
    gone = {place % len(x) for place in (range(len(x)) if given is None else given)}
    for place in gone:
        operation.fix(x[place], "summed or averaged over it")
    keep = operation.arguments.get("keepdim", False)
    return [constant(1) if at in gone else d for at, d in enumerate(x) if keep or at not in gone]


@_rule("softmax", "_softmax", "log_softmax", "cumsum")
def softmax(operation: Operation) -> Dims:
    operation.fix(operation["self"][operation["dim"]], "normalised or summed over it")
    return list(operation["self"])


@_rule("matmul", "bmm", "mm")
def matmul(operation: Operation) -> Dims:
    left, right = (
        operation["self"],
        operation["other" if operation.name == "aten.matmul" else "mat2"],
    )
    if min(len(left), len(right)) < 2:
        raise Mismatch("a product with a vector")
    operation.same(left[-1], right[-2])
    weight = "other" if operation.name == "aten.matmul" else "mat2"
    if weight in operation.tensors and len(right) == 2:
        operation.reads(weight, 0)
    else:
        operation.fix(left[-1], "a product of activations sums over it")
    dims = [*_batches(operation, left, right), left[-2], right[-1]]
    operation.costs(*dims, left[-1])
    return dims


def _batches(operation: Operation, left: Dims, right: Dims) -> Dims:
    dims = []
    for back in range(len(operation.shape), 2, -1):
        both = [x[-back] for x in (left, right) if len(x) >= back]
        wide = [dim for dim in both if dim.size != 1] or both
        if len(wide) == 2:
            operation.same(*wide)
        dims.append(wide[0])
    return dims


@_rule("scaled_dot_product_attention")
def attention(operation: Operation) -> Dims:
    query, key, value = operation["query"], operation["key"], operation["value"]
    operation.fix(query[-1], "the size of a head, by which scores are scaled")
    operation.fix(key[-2], "attended over")
    operation.fix(query[-2], "attended from")
    operation.same(query[-1], key[-1])
    operation.same(key[-2], value[-2])
    for one, two, three in zip(query[:-2], key[:-2], value[:-2], strict=True):
        operation.same(one, two)
        operation.same(two, three)
    mask = operation["attn_mask"]
    for dim in mask or ():
        operation.fix(dim, "a mask")
    operation.costs(*query, key[-2])
    operation.costs(*query[:-1], *value[-2:])
    return [*query[:-1], value[-1]]
