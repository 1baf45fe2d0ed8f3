"""`outsize.verify`: does the planned step do, bit for bit, what the step does without a plan?

    report = outsize.verify(train_step, batch)     # train_step: decorated by outsize.step
    print(report)                                  # equal, or the first value that differs
    assert report.equal

The step runs four times from the state that is there: twice plainly, once planned, and once plainly while
its ops are put down, to be held against those that the plan was made from. The first two are the control:
where they differ, the step itself does not repeat (a nondeterministic kernel, a clock, a counter) and no plan
could be held against it. Afterwards the state is what it was.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy
import torch
from torch.utils import _pytree

from .capture.entries import Names
from .errors import BadInputError, CaptureError
from .graph_words import op_words
from .step import Step, check_decorated

_Values = dict[str, Any]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Difference:
    """One tensor or number that two runs left different."""

    name: str  # as graphs name it ("param:wte.weight"), "returned[0]", "generator"
    text: str  # the first element that differs, in both
    op: str = ""  # the op that wrote it last, with module and line, where the plan knows it

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" + (f"; last written by {self.op}" if self.op else "")


@dataclass(frozen=True)
class Verification:
    """What `verify` found. `differences` stand in the order in which their last ops run."""

    compared: int  # values: returned, parameters, buffers, gradients, optimizer state, generators
    differences: tuple[Difference, ...]  # planned against unplanned
    control: tuple[Difference, ...]  # unplanned against unplanned
    ops: int  # that the plan was made from
    other_op: str = ""  # the first of them that a plain run does not do there, and what it does

    @property
    def repeats(self) -> bool:
        """Whether the step without a plan gives the same bits twice."""
        return not self.control

    @property
    def equal(self) -> bool:
        """Whether the planned step is bit-equal to the unplanned one (and that repeats), and of the same ops."""
        return self.repeats and not self.differences and not self.other_op

    def __str__(self) -> str:
        if not self.repeats:
            return (
                f"the step does not repeat without a plan either: {len(self.control)} of {self.compared} "
                f"values differ between two unplanned runs, first {self.control[0]}"
            )
        if self.differences:
            return (
                f"{len(self.differences)} of {self.compared} values differ from the unplanned run, "
                f"first {self.differences[0]}"
            )
        if self.other_op:
            return f"equal bits, by other ops: {self.other_op}"
        return (
            f"equal: {self.compared} values, bit for bit; two unplanned runs equal too; the {self.ops} ops "
            "are those of a plain run, in its order"
        )


def verify(step: Step, *args: Any, also: Iterable[Any] = (), **kwargs: Any) -> Verification:
    """Runs `step` on these arguments plainly, plainly again and planned, and compares every bit.

    step: a function decorated by `outsize.step`. also: what else the step changes, each with
    state_dict and load_state_dict (schedulers, scalers). Needs memory for four copies of the state.
    Raises BadInputError for a step that isn't decorated, and what the step raises.
    """
    check_decorated(step, "verify(outsize.step(model, optimizer, budget=...)(function), batch)")
    others = list(also)
    for thing in others:
        if not hasattr(thing, "state_dict") or not hasattr(thing, "load_state_dict"):
            raise BadInputError(
                f"verify(also=...) takes objects with state_dict and load_state_dict, had {type(thing).__name__}"
            )
    before = _State(step, others)

    def undone(call: Callable[..., _Result]) -> _Result:
        given, named = copy.deepcopy((args, kwargs))
        try:
            return call(*given, **named)
        finally:
            before.restore()

    def left_by(call: Callable[..., Any]) -> _Values:
        return undone(lambda *given, **named: _values(step, call(*given, **named)))

    one, two, planned = left_by(step.function), left_by(step.function), left_by(step)
    writers = _last_writers(step)
    planned_ops = step.last_graph()["ops"]
    try:
        plain = undone(functools.partial(step.recorded, before.restore))
        other_op = _first_other(planned_ops, plain.graph["ops"])
    except CaptureError as error:
        other_op = f"a plain run can't be put down: {error}"
    return Verification(
        compared=len(one),
        differences=_differences(one, planned, writers),
        control=_differences(one, two, writers),
        ops=len(planned_ops),
        other_op=other_op,
    )


def _first_other(planned: list[dict[str, Any]], plain: list[dict[str, Any]]) -> str:
    """Where two lists of ops part: what each has there; "" if they don't."""
    for index, (one, other) in enumerate(itertools.zip_longest(planned, plain)):
        if one is None or other is None or one["name"] != other["name"]:
            had, wanted = ("nothing" if op is None else op_words(index, op) for op in (one, other))
            return f"the plan has {had} where a plain run has {wanted}"
    return ""


class _State:
    """Everything that a step may change, copied; `restore` puts it back in place."""

    def __init__(self, step: Step, others: list[Any]) -> None:
        self._step, self._others = step, others
        names = Names(step.models, step.optimizers)
        self._tensors = [(t, t.detach().clone()) for _, t in (*names.parameters, *names.buffers)]
        self._gradients = [
            (t, None if t.grad is None else (t.grad, t.grad.detach().clone()))
            for _, t in names.parameters
        ]
        self._states = [
            {key: (value, _cloned(value)) for key, value in optimizer.state.items()}
            for optimizer in step.optimizers
        ]
        self._groups = [
            [
                {k: (v, _cloned(v)) for k, v in group.items() if k != "params"}
                for group in o.param_groups
            ]
            for o in step.optimizers
        ]
        self._other_states = [copy.deepcopy(thing.state_dict()) for thing in others]
        self._generators = (torch.get_rng_state(), random.getstate(), numpy.random.get_state())

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, value in self._tensors:
                tensor.copy_(value)
            for parameter, gradient in self._gradients:
                parameter.grad = None
                if gradient is not None:
                    gradient[0].copy_(gradient[1])
                    parameter.grad = gradient[0]
            for optimizer, states in zip(self._step.optimizers, self._states, strict=True):
                optimizer.state.clear()
                for owner, (state, content) in states.items():
                    optimizer.state[owner] = _put_back(state, content)
            for optimizer, groups in zip(self._step.optimizers, self._groups, strict=True):
                for group, saved in zip(optimizer.param_groups, groups, strict=True):
                    for key, (old, value) in saved.items():
                        group[key] = _put_back(old, value)
        for thing, saved_state in zip(self._others, self._other_states, strict=True):
            thing.load_state_dict(copy.deepcopy(saved_state))
        torch.set_rng_state(self._generators[0])
        random.setstate(self._generators[1])
        numpy.random.set_state(self._generators[2])


def _cloned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cloned(item) for item in value)
    return copy.deepcopy(value)


def _put_back(old: Any, value: Any) -> Any:
    """`value` in the objects that `old` is made of, where those are tensors or hold them."""
    if isinstance(old, torch.Tensor):
        old.copy_(value)
        return old
    if isinstance(old, dict):
        for key in list(old):
            if key not in value:
                del old[key]
        for key, item in value.items():
            old[key] = _put_back(old[key], item) if key in old else _cloned(item)
        return old
    if isinstance(old, list) and len(old) == len(value):
        old[:] = [_put_back(o, v) for o, v in zip(old, value, strict=True)]
        return old
    return _cloned(value)


def _values(step: Step, returned: Any) -> _Values:
    """What a run left, copied, by name."""
    values: _Values = {}
    for index, leaf in enumerate(_pytree.tree_leaves(returned)):
        values[f"returned[{index}]"] = _cloned(leaf)
    names = Names(step.models, step.optimizers)
    for name, tensor in step.named_tensors().items():
        values[name] = tensor.detach().clone()
    for name, parameter in names.parameters:
        if parameter.grad is None:
            values[f"grad:{name}"] = None
    for index, optimizer in enumerate(step.optimizers):
        for group_index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, (int, float, bool)):
                    values[f"optimizer {index}, group {group_index}: {key}"] = value
    values["generator"] = torch.get_rng_state()
    return values


def _differences(
    one: _Values, other: _Values, writers: dict[str, tuple[int, str]]
) -> tuple[Difference, ...]:
    found = []
    for name in [*one, *(name for name in other if name not in one)]:
        text = _difference(one.get(name), other.get(name), name in one, name in other)
        if text:
            at, op = writers.get(name, (1 << 60, ""))
            found.append((at, Difference(name, text, op)))
    return tuple(d for _, d in sorted(found, key=lambda item: item[0]))


def _difference(one: Any, other: Any, in_one: bool, in_other: bool) -> str:
    if not (in_one and in_other):
        return "is there without a plan only" if in_one else "is there with a plan only"
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _tensor_difference(one, other)
    if type(one) is not type(other):
        return f"{type(one).__name__} without a plan, {type(other).__name__} with one"
    return "" if one == other or one != one else f"{one!r} without a plan, {other!r} with one"


def _tensor_difference(one: torch.Tensor, other: torch.Tensor) -> str:
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype} {tuple(one.shape)} without a plan, {other.dtype} {tuple(other.shape)} with one"
    bits = [t.resolve_conj().resolve_neg().contiguous().view(-1) for t in (one, other)]
    if not bits[0].numel():
        return ""
    raw = [b.view(torch.uint8).view(b.numel(), -1) for b in bits]
    unequal = (raw[0] != raw[1]).any(dim=1).nonzero()
    if not len(unequal):
        return ""
    at = int(unequal[0])
    index = numpy.unravel_index(at, tuple(one.shape)) if one.shape else ()
    return (
        f"element [{', '.join(str(int(i)) for i in index)}] is {bits[0][at].item()!r} without a plan, "
        f"{bits[1][at].item()!r} with one; {len(unequal)} of {bits[0].numel()} differ"
    )


def _last_writers(step: Step) -> dict[str, tuple[int, str]]:
    """Of each persistent storage by name: the index of the op that writes it last, and its words."""
    graph = step.last_graph()
    writers: dict[str, tuple[int, str]] = {}
    for index, op in enumerate(graph.get("ops", [])):
        for access in (*op.get("makes", []), *op.get("mutates", [])):
            name = graph["storages"][access[0]].get("name", "")
            if name:
                writers[name] = (index, op_words(index, op))
    return writers
