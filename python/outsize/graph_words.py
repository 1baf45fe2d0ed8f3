"""What people read of a graph's parts.

op_words(12, graph["ops"][12])    # "op 12 aten.mm.default (wte, model.py:7)"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """An op of a captured step, and where the step asks for it; "" and 0 where that is not known."""

    op: int  # its number in the step
    name: str  # "aten.mm.default"
    module: str  # qualified name
    file: str
    line: int

    def __str__(self) -> str:
        where = [self.module] if self.module else []
        if self.file:
            where.append(f"{self.file}:{self.line}")
        return f"op {self.op} {self.name}" + (f" ({', '.join(where)})" if where else "")


def place_of(index: int, op: dict[str, Any]) -> Place:
    """The place of the graph's op of that number."""
    site = op.get("site", {})
    return Place(index, op["name"], module_of(op), site.get("file", ""), site.get("line", 0))


def module_of(op: dict[str, Any]) -> str:
    """The qualified name of the module that an op runs in; "" outside of modules."""
    return str(op.get("site", {}).get("module", ""))


def op_words(index: int, op: dict[str, Any]) -> str:
    """An op by number and name, with its module and line where those are known."""
    return str(place_of(index, op))
