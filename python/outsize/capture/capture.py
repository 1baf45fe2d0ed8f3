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
from outsize.capture.entries import Names
from outsize.capture.result import Capture
from outsize.capture.session import Session, UnknownTensor


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
    for known_before in (None, survivors.storages_alive):
        session = Session(function, args, kwargs or {}, names, real, symbols, title, check_writes)
        if known_before is not None:
            gc.collect()
            session.known_before = known_before()
        try:
            return session.run()
        except UnknownTensor:
            continue
    raise AssertionError("the second capture knows every tensor")
