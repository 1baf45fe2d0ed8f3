"""Numbers that are known only when the step runs: learning rates, `tensor.item()`, and what Python
computes from them. During a capture they are `torch.SymFloat`/`SymInt`/`SymBool` objects around a
`ScalarNode`, which writes each operation down in Python's own order and carries the present value.

    lr = table.input("optimizer.0.group.0.lr", 0.1)   # scalars[0]
    size = lr / (1 - 0.9 ** step.item())              # pow, sub, truediv: scalars[2..4]

A branch on such a number becomes a guard (its outcome is recorded) where the present value is known
without running the step; otherwise the capture is refused.
"""

from __future__ import annotations

import math
import operator
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Number = bool | int | float

# The functions of the graph's scalars, as Python computes them.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "neg": operator.neg,
    "abs": abs,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "float": float,
    "int": int,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": operator.not_,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

# Node methods that torch's SymFloat/SymInt/SymBool call, by the graph's function.
_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "mod": "mod",
    "pow": "pow",
    "float_pow": "pow",
    "pow_by_natural": "pow",
    "truediv": "truediv",
    "float_truediv": "truediv",
    "int_truediv": "truediv",
    "floordiv": "floordiv",
    "int_floordiv": "floordiv",
    "sym_min": "min",
    "sym_max": "max",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "and_": "and",
    "or_": "or",
    "sym_and": "and",
    "sym_or": "or",
}
_UNARY = {
    "neg": "neg",
    "abs": "abs",
    "sym_float": "float",
    "sym_int": "int",
    "trunc": "int",
    "sym_sqrt": "sqrt",
    "sym_not": "not",
}
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "not"}


@dataclass(frozen=True)
class Ref:
    """An earlier scalar, as an argument."""

    id: int


@dataclass
class ScalarRecord:
    """One entry of the graph's `scalars`."""

    kind: str
    type: type
    name: str = ""
    function: str = ""
    args: list[Ref | Number] = field(default_factory=list)
    present: Number | None = None
    # Items: computes the present value on demand, or returns None where it is not to be had.
    evaluate: Callable[[], Number | None] | None = None
    tried: bool = False
    source: tuple[int, int] | None = None  # items: the op that reads it, and the value


class ScalarTable:
    """All scalars of one capture, and the hooks that its owner gives them. One thread."""

    def __init__(self) -> None:
        self.records: list[ScalarRecord] = []
        self._nodes: list[weakref.ref[ScalarNode]] = []
        # guard(node, outcome): Python took a branch, or a plain number. The present value is known.
        self.on_guard: Callable[[ScalarNode, Number], None] = lambda node, outcome: None
        # unknown(node): a branch or a number was wanted and the present value is not known; raises.
        self.on_unknown: Callable[[ScalarNode, str], None] = lambda node, what: None
        # plain(node, value): an op's argument parser wanted a plain float.
        self.on_plain: Callable[[ScalarNode, float], None] = lambda node, value: None

    def _add(self, record: ScalarRecord) -> ScalarNode:
        self.records.append(record)
        node = ScalarNode(self, len(self.records) - 1, record.type, None)
        self._nodes.append(weakref.ref(node))
        return node

    def alive(self) -> bool:
        """Whether somebody still holds one of the numbers."""
        return any(node() is not None for node in self._nodes)

    def input(self, name: str, present: Number) -> ScalarNode:
        return self._add(ScalarRecord("input", type(present), name=name, present=present))

    def item(
        self, kind: type, source: tuple[int, int], evaluate: Callable[[], Number | None]
    ) -> ScalarNode:
        return self._add(ScalarRecord("item", kind, evaluate=evaluate, source=source))

    def op(self, function: str, args: list[ScalarNode]) -> ScalarNode:
        kind = _result_type(function, [arg.type for arg in args])
        plain = [arg.as_argument() for arg in args]
        return self._add(ScalarRecord("op", kind, function=function, args=plain))

    def present(self, scalar: int) -> Number | None:
        record = self.records[scalar]
        if record.present is None and not record.tried:
            record.tried = True
            if record.kind == "item" and record.evaluate is not None:
                record.present = record.evaluate()
            elif record.kind == "op":
                record.present = self.compute(record, self.present)
        return record.present

    def compute(self, record: ScalarRecord, value: Callable[[int], Number | None]) -> Number | None:
        """An op's number, from those that `value` gives for the scalars it takes."""
        args = [value(arg.id) if isinstance(arg, Ref) else arg for arg in record.args]
        return None if any(arg is None for arg in args) else compute(record.function, args)


def _result_type(function: str, types: list[type]) -> type:
    if function in _COMPARISONS:
        return bool
    if function in ("truediv", "sqrt", "float"):
        return float
    if function == "int":
        return int
    if function in ("and", "or"):
        return types[0] if types[0] is types[-1] else float
    return float if float in types else int


def compute(function: str, args: list[Any]) -> Number | None:
    """`function` of `args` as Python computes it; None where Python raises or leaves the reals."""
    try:
        value = FUNCTIONS[function](*args)
    except (ArithmeticError, ValueError):
        return None
    return value if isinstance(value, (bool, int, float)) else None


_Text = str  # ScalarNode has a method of that name, which torch calls


class ScalarNode:
    """What torch's symbolic numbers hold: duck-typed after torch's own SymNode."""

    def __init__(
        self, table: ScalarTable, scalar: int | None, kind: type, literal: Number | None
    ) -> None:
        self.table = table
        self.id = scalar  # None: a plain number that met a symbolic one
        self.type = kind
        self.literal = literal

    # -- what torch asks ------------------------------------------------------------------------
    def is_int(self) -> bool:
        return self.type is int

    def is_float(self) -> bool:
        return self.type is float

    def is_bool(self) -> bool:
        return self.type is bool

    def is_nested_int(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return self.id is not None

    def is_constant(self) -> bool:
        return self.id is None

    @property
    def constant(self) -> Number | None:
        return self.literal

    @property
    def hint(self) -> Number | None:
        return self.present()

    def has_hint(self) -> bool:
        return self.present() is not None

    def require_hint(self, fallback: Any = None) -> Any:
        return self._known("its value")

    def maybe_as_int(self) -> int | None:
        return int(self.literal) if self.literal is not None and self.type is int else None

    def maybe_as_float(self) -> float | None:
        return float(self.literal) if self.literal is not None and self.type is float else None

    def maybe_as_bool(self) -> bool | None:
        return bool(self.literal) if self.literal is not None and self.type is bool else None

    constant_int = maybe_as_int
    constant_bool = maybe_as_bool

    def nested_int(self) -> None:
        return None

    def clone(self) -> ScalarNode:
        return self

    def wrap_int(self, number: int) -> ScalarNode:
        return ScalarNode(self.table, None, int, number)

    def wrap_float(self, number: float) -> ScalarNode:
        return ScalarNode(self.table, None, float, number)

    def wrap_bool(self, number: bool) -> ScalarNode:
        return ScalarNode(self.table, None, bool, number)

    def as_argument(self) -> Ref | Number:
        if self.id is not None:
            return Ref(self.id)
        assert self.literal is not None
        return self.literal

    def present(self) -> Number | None:
        return self.literal if self.id is None else self.table.present(self.id)

    # -- branches and plain numbers -------------------------------------------------------------
    def _known(self, what: str) -> Number:
        value = self.present()
        if value is None:
            self.table.on_unknown(self, what)
            raise AssertionError("on_unknown returned")
        return value

    def _guard(self, what: str) -> Number:
        value = self._known(what)
        if self.id is not None:
            self.table.on_guard(self, value)
        return value

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return bool(self._guard("a branch"))

    bool_ = guard_bool

    def guard_size_oblivious(self, file: str = "", line: int = 0) -> bool:
        return self.guard_bool()

    guard_or_false = guard_size_oblivious
    guard_or_true = guard_size_oblivious

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        # An assertion that torch makes for itself (a base is not negative): the outcome is no branch.
        value = self.present()
        return True if value is None else bool(value)

    def expect_size(self, file: str = "", line: int = 0) -> bool:
        return bool(self._guard("a size"))

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self._guard("a plain int"))

    def int_(self) -> int:
        return self.guard_int()

    def guard_float(self, file: str = "", line: int = 0) -> float:
        value = float(self._known("a plain float"))
        if self.id is not None:
            if sys._getframe(1).f_code.co_filename == torch.__file__:
                self.table.on_guard(self, value)  # float(x) in Python: it may go anywhere
            else:
                self.table.on_plain(self, value)
        return value

    def guard_plain(self) -> Number:
        """The number as it is now; the capture holds while it is that."""
        return self._guard("its value")

    # -- text -----------------------------------------------------------------------------------
    def str(self) -> _Text:
        return f"scalar:{self.id}" if self.id is not None else repr(self.literal)

    __str__ = __repr__ = _graph_repr = str

    # -- arithmetic -----------------------------------------------------------------------------
    def _op(self, function: _Text, *others: ScalarNode) -> ScalarNode:
        nodes = [self, *others]
        if all(node.id is None for node in nodes):
            value = compute(function, [node.literal for node in nodes])
            assert value is not None
            return ScalarNode(self.table, None, type(value), value)
        return self.table.op(function, nodes)

    def is_integer(self) -> ScalarNode:
        return self._op("eq", self._op("int"))

    def __getattr__(self, name: _Text) -> Any:
        # Only rare methods of torch's node come here (floor, ceil, round, math functions).
        if name.startswith("_"):
            raise AttributeError(name)

        def exact(*others: Any) -> Any:
            self._guard(f"`{name}`")
            raise AttributeError(f"a captured number has no `{name}`")

        return exact


def _binary(function: str) -> Callable[[ScalarNode, ScalarNode], ScalarNode]:
    return lambda self, other: self._op(function, other)


def _unary(function: str) -> Callable[[ScalarNode], ScalarNode]:
    return lambda self: self._op(function)


for _method, _function in _BINARY.items():
    setattr(ScalarNode, _method, _binary(_function))
for _method, _function in _UNARY.items():
    setattr(ScalarNode, _method, _unary(_function))

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def node_of(value: Any) -> ScalarNode | None:
    """The node behind a symbolic number of ours, else None."""
    if isinstance(value, SYMBOLIC):
        node = value.node
        if isinstance(node, ScalarNode):
            return node
    return None


def choose(function: str, values: list[Any]) -> Any:
    """Python's `min` or `max` of numbers of which some are symbolic; None if none of ours is."""
    nodes = [node_of(value) for value in values]
    first = next((node for node in nodes if node is not None), None)
    if first is None:
        return None
    plain = {int: first.wrap_int, float: first.wrap_float, bool: first.wrap_bool}
    operands = []
    for value, node in zip(values, nodes):
        if node is None and type(value) not in plain:
            return None
        operands.append(node or plain[type(value)](value))
    return symbolic(first.table.op(function, operands))


def symbolic(node: ScalarNode) -> Any:
    """The symbolic number around a node."""
    if node.type is float:
        return torch.SymFloat(node)  # type: ignore[no-untyped-call]
    kind: Any = torch.SymInt if node.type is int else torch.SymBool
    return kind(node)
