"""What a capture returns: the graph, and how its ids bind to the user's objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from outsize.capture.arguments import flatten
from outsize.capture.entries import Names
from outsize.capture.scalars import Number
from outsize.capture.seal import SIMPLE, Place, same_simple
from outsize.capture.storages import input_begin


@dataclass(frozen=True)
class Output:
    """One leaf of what the step returns."""

    kind: str  # "value" (id), "scalar" (id), "argument" (leaf index), "object" (itself)
    id: int = -1
    object: Any = None


@dataclass(frozen=True)
class Input:
    """A storage that comes with the batch: the bytes of an argument's storage from `begin` on.

    A batch is often a slice of something larger, at another place in each call.
    """

    storage: int
    leaf: int  # index into the flattened (args, kwargs)
    before: int  # bytes that arguments reach on that storage before this leaf's first

    def begin(self, flat: list[Any]) -> int:
        """The byte of the leaf's storage at which the graph's storage starts, in this call."""
        return input_begin(flat[self.leaf], self.before)


@dataclass(frozen=True)
class ScalarInput:
    """A scalar that is handed in at each call: `read(flat)` gives it, from the flattened arguments."""

    scalar: int
    name: str
    read: Callable[[list[Any]], Number]


@dataclass(frozen=True)
class Replay:
    """Python bookkeeping that the step does and that is to be done after each call."""

    what: str
    run: Callable[[], Any]


@dataclass(frozen=True)
class NewState:
    """Optimizer state that this step makes: a tensor (`value`) or a plain Python object."""

    optimizer: int
    owner: Any
    path: str  # "exp_avg"; dotted inside lists and dicts
    value: int | None
    object: Any = None


@dataclass
class Capture:
    """What one call of the step is, and how to bind it to real tensors."""

    graph: dict[str, Any]
    signature: str
    inputs: list[Input]
    scalar_inputs: list[ScalarInput]
    entries: dict[int, torch.Tensor]  # persistent storages, but for gradients
    grad_entries: dict[int, str]  # storage id -> parameter whose .grad lies there at entry
    outputs: list[Output]
    output_spec: Any
    grads: dict[str, int | None]  # parameter name -> value id; only parameters whose .grad is new
    dropped_grads: list[str]  # parameters whose .grad is None afterwards and was not before
    new_state: list[NewState]
    models: list[torch.nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    bound: dict[str, torch.Tensor] = field(default_factory=dict)  # name -> what it was
    replays: list[Replay] = field(default_factory=list)
    stepped: list[torch.optim.Optimizer] = field(default_factory=list)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    places: list[tuple[Place, Any]] = field(default_factory=list)
    guard: Callable[[list[Any]], str] = lambda flat: ""

    def entry_tensors(self) -> dict[int, torch.Tensor]:
        """Storage id -> the tensor that lies there now, for all persistent entries."""
        result = dict(self.entries)
        for storage, name in self.grad_entries.items():
            gradient = self.parameters[name].grad
            assert gradient is not None, "which .grad exist is part of the signature"
            result[storage] = gradient
        return result

    def stale(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], names: Names | None = None
    ) -> str:
        """Why this capture does not serve this call ("" if it does). Requires: equal signatures.

        names: the models and optimizers as they are now, if the caller has them already.
        """
        names = names or Names(self.models, self.optimizers)
        for name, tensor in names.tensors():
            if self.bound.get(name) is not tensor:
                return f"{name} is another tensor than it was"
        for place, value in self.places:
            now = place.get()
            if now is value or (type(now) is type(value) and same_simple(now, value)):
                continue
            if isinstance(value, SIMPLE):
                return f"{place.path} is {now!r}, was {value!r}"
            return f"{place.path} is another object than it was"
        return self.guard([leaf for _, leaf in flatten(args, kwargs)])


def op_names(captured: Capture) -> list[str]:
    """The ops in program order."""
    return [op["name"] for op in captured.graph["ops"]]
