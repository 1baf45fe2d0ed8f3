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
from typing import Any

import torch

from outsize.capture import survivors
from outsize.capture.conclude import OUTSIDE
from outsize.capture.entries import Names
from outsize.capture.result import Capture
from outsize.capture.seal import Change
from outsize.capture.session import Reassigned, Session, SymbolicSize, UnknownTensor
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
) -> Capture:
    """The graph of `function(*args, **kwargs)`.

    symbols: paths of Python floats and ints (as `Capture.stale` names them) that become inputs of the
    graph instead of values it holds for.
    check_writes: with real=True, compare each op's operands before and after, and refuse an op that
    writes what its schema does not mark (slow; how `tables.py` was checked). Raises CaptureError; then nothing has been changed.
    """
    names = Names(list(models), list(optimizers))
    known_before: set[int] | None = None
    plain_sizes = False
    settings: frozenset[str] = frozenset()
    while True:
        session = Session(
            function,
            args,
            kwargs or {},
            names,
            real,
            symbols,
            title,
            check_writes,
            plain_sizes,
            settings,
        )
        session.known_before = known_before
        try:
            return session.run()
        except UnknownTensor:
            gc.collect()
            known_before = survivors.storages_alive()
        except SymbolicSize:
            plain_sizes = True
        except Reassigned as found:
            settings |= _settled(session, found.changes)


def _settled(session: Session, changes: list[Change]) -> frozenset[str]:
    """The paths of the numbers that the step sets and does not count: from where it leaves them, another
    run of it changes nothing. Raises CaptureError for a counter.
    """
    try:
        for change in changes:
            change.repeat()
        trial = session.again()
        try:
            trial.run()
        except Reassigned as more:
            raise CaptureError(
                f"the step changes Python state: {more.changes[0]}", way_out=OUTSIDE
            ) from None
    finally:
        for change in changes:
            change.undo()
    return frozenset(change.path for change in changes)
