"""Where an op comes from: the module, the user's line, and forward, backward or optimizer.

    with Sites(models) as sites: ...
    sites.now()  ->  Site("transformer.h.0.mlp", "train.py", 31, "forward")

An op of the backward pass has the module and line of the forward op whose gradient it computes:
autograd numbers its nodes, and the number that a forward op is about to use can be asked for.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

import torch
from torch.optim import optimizer as torch_optimizer

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OUTSIZE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


_sequence_number: Any = cast(Any, torch.autograd)._get_sequence_nr


@dataclass(frozen=True)
class Site:
    """A place in the user's program; empty fields are unknown."""

    module: str = ""
    file: str = ""
    line: int = 0
    phase: str = ""

    def json(self) -> dict[str, Any]:
        fields = {
            "module": self.module,
            "file": self.file,
            "line": self.line,
            "phase": self.phase,
        }
        return {name: value for name, value in fields.items() if value}

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else self.module


def user_frame(frame: FrameType | None) -> tuple[str, int]:
    """File and line of the innermost frame outside torch and Outsize."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _OUTSIZE, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


class Sites:
    """Follows modules, optimizers and autograd nodes during a capture. One thread."""

    def __init__(self, names: dict[int, str], parameter_names: dict[int, str]) -> None:
        self._names = names  # id(module) -> qualified name
        self._parameter_names = parameter_names  # id(parameter) -> qualified name
        self._stack: list[str] = []
        self._optimizers = 0
        self._backward_seen = False
        self._by_sequence: dict[int, Site] = {}
        self._handles: list[Any] = []
        self._call: Any = None

    def __enter__(self) -> Sites:
        call: Any = torch.nn.Module.__call__
        self._call = call
        names, stack = self._names, self._stack

        def tracked(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            stack.append(names.get(id(module), stack[-1] if stack else ""))
            try:
                return call(module, *args, **kwargs)
            finally:
                stack.pop()

        torch.nn.Module.__call__ = tracked  # type: ignore[method-assign]
        self._handles = [
            torch_optimizer.register_optimizer_step_pre_hook(self._optimizer_begins),
            torch_optimizer.register_optimizer_step_post_hook(self._optimizer_ends),
        ]
        return self

    def __exit__(self, *exc: Any) -> None:
        torch.nn.Module.__call__ = self._call  # type: ignore[method-assign]
        for handle in self._handles:
            handle.remove()

    def _optimizer_begins(self, *_: Any) -> None:
        self._optimizers += 1

    def _optimizer_ends(self, *_: Any) -> None:
        self._optimizers -= 1

    def now(self) -> Site:
        node: Any = torch._C._current_autograd_node()
        if node is not None:
            self._backward_seen = True
            return self._backward(node)
        file, line = user_frame(sys._getframe(1))
        module = self._stack[-1] if self._stack else ""
        if self._optimizers:
            return Site(module, file, line, "optimizer")
        grad = torch.is_grad_enabled()
        phase = "forward" if grad or self._stack or not self._backward_seen else "optimizer"
        site = Site(module, file, line, phase)
        if grad:
            # The node of this op, if it has one, took its number just before this dispatch.
            self._by_sequence.setdefault(_sequence_number() - 1, site)
        return site

    def _backward(self, node: Any) -> Site:
        variable = getattr(node, "variable", None)
        if variable is not None:
            name = self._parameter_names.get(id(variable), "")
            file, line = user_frame(sys._getframe(2))
            return Site(name.rpartition(".")[0], file, line, "backward")
        forward = self._by_sequence.get(node._sequence_nr())
        if forward is None:
            file, line = user_frame(sys._getframe(2))
            return Site("", file, line, "backward")
        return Site(forward.module, forward.file, forward.line, "backward")
