"""One call of a step: its arguments flattened and the persistent tensors there are, each looked up once.

call = Call(args, kwargs, models, optimizers)
call.flat, call.signature        # what a capture must fit
call.tensors["param:wte.weight"] # by the names that graphs give storages
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from .capture.arguments import flatten
from .capture.entries import Names
from .capture.signature import signature
from .capture.storages import has_storage


class Call:
    """See the file's head. Holds references: not kept after the call."""

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        models: list[torch.nn.Module],
        optimizers: list[torch.optim.Optimizer],
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self.names = Names(models, optimizers)
        self.leaves = flatten(args, kwargs)
        self.flat = [leaf for _, leaf in self.leaves]
        self.signature = signature(args, kwargs, self.names)

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Every persistent tensor there is now, by the name that graphs give its storage."""
        return tensors_by_name(self.names)

    def circumstances(self) -> dict[str, str]:
        """What commonly makes signatures differ, for people: subject -> how it is."""
        result = {
            "PyTorch's thread count": str(torch.get_num_threads()),
            "the arguments": ", ".join(_brief(path, leaf) for path, leaf in self.leaves),
            "whether gradients are recorded": str(torch.is_grad_enabled()),
            "autocast": str(torch.is_autocast_enabled("cpu")),
            "which modules train": "".join(
                "t" if m.training else "e" for model in self.names.models for m in model.modules()
            ),
            "which .grad exist": ", ".join(
                name for name, parameter in self.names.parameters if parameter.grad is not None
            ),
            "which optimizer state exists": ", ".join(
                self.names.state_name(state) for state in self.names.states()
            ),
        }
        return result


def differences(before: dict[str, str], now: dict[str, str]) -> str:
    """Names what differs, with short values: "PyTorch's thread count was 2, is 1"."""
    texts = []
    for subject, value in now.items():
        old = before[subject]
        if old == value:
            continue
        short = len(old) + len(value) <= 200 and old and value
        texts.append(
            f"{subject} was {old}, is {value}"
            if short and not subject.startswith("which ")
            else f"{subject} has changed"
        )
    return "; ".join(texts) or "an option of the optimizer, or a parameter's shape, has changed"


def tensors_by_name(names: Names) -> dict[str, torch.Tensor]:
    """Every persistent tensor there is now, by the name that graphs give its storage."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in names.parameters:
        found[f"param:{name}"] = parameter
        gradient = parameter.grad
        if gradient is not None and has_storage(gradient):
            found[f"grad:{name}"] = gradient
    for name, buffer in names.buffers:
        found[f"buffer:{name}"] = buffer
    for state in names.states():
        if isinstance(state.value, torch.Tensor):
            found[names.state_name(state)] = state.value
    for index, optimizer in enumerate(names.optimizers):
        for group_index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    found[f"optimizer.{index}.group.{group_index}.{key}"] = value
    return found


def _brief(path: str, leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        kind = str(leaf.dtype).removeprefix("torch.")
        return f"{path}: {kind}{list(leaf.size())}"
    if type(leaf) is float:
        return f"{path}: float"
    return f"{path}: {leaf!r}"[:60]
