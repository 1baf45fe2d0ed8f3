"""Captures one call of a training step as a graph of the ops that eager dispatches.

    captured = capture(train_step, (batch,), {}, models=[model], optimizers=[optimizer])
    captured.graph["ops"][0]["name"]    # "aten.embedding.default"
    captured.entries                    # storage id -> the real tensor that lies there
    captured.outputs                    # what the step returns, as value and scalar ids

A capture touches nothing real: the step runs on stand-ins, and afterwards every `.grad`, optimizer state
entry and attribute is as before. A step that cannot be captured faithfully is refused with the op, the
user's line and a way out. `real=True` runs the step for real, once, and records the same: the cross-check.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from outsize.capture import survivors
from outsize.capture.conclude import OUTSIDE
from outsize.capture.entries import Names
from outsize.capture.result import Capture
from outsize.capture.seal import Change
from outsize.capture.session import Learned, Reassigned, Session, SymbolicSize, UnknownTensor
from outsize.errors import CaptureError


def capture(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    models: Sequence[torch.nn.Module] = (),
    optimizers: Sequence[torch.optim.Optimizer] = (),
    real: bool = False,
    symbols: frozenset[str] = frozenset(),
    title: str = "step",
    check_writes: bool = False,
    undo: Callable[[], None] = lambda: None,
) -> Capture:
    """The graph of `function(*args, **kwargs)`.

    symbols: paths of Python floats and ints (as `Capture.stale` names them) that become inputs of the
    graph instead of values it holds for.
    check_writes: with real=True, compare each op's operands before and after, and refuse an op that
    writes what its schema does not mark (slow; how `tables.py` was checked).
    undo: with real=True, puts back what the step changes: called before it has to run once more.
    Raises CaptureError; then nothing has been changed, unless by a step that ran for real.
    """
    names = Names(list(models), list(optimizers))

    def attempt(learned: Learned) -> Session:
        return Session(
            function, args, kwargs or {}, names, real, symbols, title, check_writes, learned
        )

    learned = Learned()
    while True:
        try:
            return attempt(learned).run()
        except UnknownTensor:
            gc.collect()
            learned = replace(learned, known_before=survivors.storages_alive())
        except SymbolicSize:
            learned = replace(learned, plain_sizes=True)
        except Reassigned as found:
            settled = _settled(attempt, learned, found.changes)
            learned = replace(learned, settings=learned.settings | settled)
        undo()


def _settled(
    attempt: Callable[[Learned], Session], learned: Learned, changes: list[Change]
) -> frozenset[str]:
    """The paths of the numbers that the step sets and does not count: from where it leaves them, another
    run of it changes nothing. Raises CaptureError for a counter.
    """
    try:
        for change in changes:
            change.repeat()
        try:
            attempt(learned).run()
        except Reassigned as more:
            raise CaptureError(
                f"the step changes Python state: {more.changes[0]}", way_out=OUTSIDE
            ) from None
    finally:
        for change in changes:
            change.undo()
    return frozenset(change.path for change in changes)
