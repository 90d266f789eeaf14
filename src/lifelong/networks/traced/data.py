"""A traced module as plain data, and what is refused of it when it comes from a file."""

from typing import Literal, final

import msgspec

from lifelong.networks.layout import (
    FIXED,
    HEAD,
    INPUTS,
    OUTPUTS,
    Layout,
    NetworkError,
)
from lifelong.networks.nn_modules import require_initials
from lifelong.networks.traced.program import (
    Program,
    Size,
)


@final
class TracedData(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="traced"):
    """A traced module without the values of its tensors, as a model file holds it.

    Attributes:
        module: name of its class, for people.
        dtype: of the inputs; token numbers are whole numbers.
        head: name of the head in the module.
        costs: multiply-adds per row, each a formula.
        constants: names of tensors that never change.
        start: names of the tensors that training starts from, for a pretrained module.
    """

    module: str
    head: str
    dtype: Literal["float32", "int64"]
    layout: Layout
    evaluation: Program
    training: Program
    costs: tuple[Size, ...]
    constants: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def report(self) -> str:
        """Which groups of units grow, and what does not, with the reason."""
        layout = self.layout
        lines = [f"{self.module}: groups of units that grow: {len(layout.groups)}"]
        for group, units in layout.groups.items():
            touched = [
                n for n, s in layout.tensors.items() if any(group in a.groups for a in s.axes)
            ]
            lines.append(f"  {group}: {units} units, in {', '.join(touched)}")
        if layout.fixed:
            lines.append("these do not:")
            lines += [f"  {layer}: {why}" for layer, why in layout.fixed.items()]
        if self.constants:
            lines.append(f"never changed: {', '.join(self.constants)}")
        return "\n".join(lines)

    def check(self) -> None:
        """Refuse references to what is not there, and operations that are not known."""
        layout, known = self.layout, {*self.layout.tensors, *self.constants}
        _check_layout(layout)
        if len(known) != len(layout.tensors) + len(self.constants):
            raise NetworkError("a tensor is a constant and a weight")
        for program in (self.evaluation, self.training):
            program.check(known)
            _check_widths(program, layout)
        groups = set(layout.groups)
        symbols = {symbol for cost in self.costs for symbol in cost.symbols}
        if not symbols <= set(self.evaluation.widths) <= groups:
            raise NetworkError("its formulas are about groups that are not there")
        if not {*self.start} <= {*layout.tensors}:
            raise NetworkError("it starts from tensors that are not there")


def _check_widths(program: Program, layout: Layout) -> None:
    """Refuse to read the width of a group where no tensor of a network has one."""
    for group, (name, dim, places) in program.widths.items():
        spec = layout.tensors.get(name)
        if spec is None or not 0 <= dim < len(spec.axes) or places < 1:
            raise NetworkError(f"the width of {group} is read from axis {dim} of {name}: none")


def _check_layout(layout: Layout) -> None:
    """Refuse what surgery could not work with."""
    widths = {INPUTS: 1, OUTPUTS: 1, **layout.groups}
    if any(units < 1 for units in layout.groups.values()) or not set(HEAD) <= set(layout.tensors):
        raise NetworkError("a layout without units, or without a head")
    if any(group in (INPUTS, OUTPUTS, FIXED) for group in layout.groups):
        raise NetworkError("a group with a name that is taken")
    for name, spec in layout.tensors.items():
        roles = [axis.role for axis in spec.axes]
        segments = [segment for axis in spec.axes for segment in axis.segments]
        odd = [
            s for s in segments if (s.group or INPUTS) not in widths or s.repeat < 1 or s.span < 0
        ]
        if (
            odd
            or roles.count("out") > 1
            or roles.count("in") > 1
            or not all(axis.segments for axis in spec.axes)
        ):
            raise NetworkError(f"{name} is declared with axes that cannot be")
        if (spec.owner == "task") != (name in HEAD or spec.kind == "buffer"):
            raise NetworkError(f"{name} belongs to neither all tasks nor one")
    require_initials(layout)
