"""Names and registers what is there before the step: parameters, buffers, optimizer state, gradients.

    names = Names([model], [optimizer])
    names.parameters       # [("wte.weight", tensor), ...]; tied ones once
    names.states           # [State(0, "exp_avg", "wte.weight", tensor), ...]

The names are the same in every graph of a model: "param:wte.weight", "state:exp_avg:wte.weight" (with
several optimizers "state:1:exp_avg:wte.weight"), "grad:wte.weight", "buffer:bn.running_mean".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from outsize.capture.storages import StorageTable, has_storage, storage_address


@dataclass
class State:
    """One tensor of an optimizer's state."""

    optimizer: int
    path: str  # "exp_avg", or "history.0" inside a list
    owner: Any  # the parameter (the key of optimizer.state)
    owner_name: str
    value: Any


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors and numbers inside a state entry, by dotted path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


class Names:
    """Qualified names of modules, parameters and optimizer state. Holds references."""

    def __init__(
        self, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        self.models, self.optimizers = models, optimizers
        self.modules: dict[int, str] = {}
        self.parameters: list[tuple[str, torch.Tensor]] = []
        self.buffers: list[tuple[str, torch.Tensor]] = []
        self.parameter_names: dict[int, str] = {}
        for index, model in enumerate(models):
            prefix = f"{index}." if len(models) > 1 else ""
            for name, module in model.named_modules():
                self.modules.setdefault(id(module), (prefix + name).rstrip("."))
            for name, parameter in model.named_parameters():
                self._parameter(prefix + name, parameter)
            for name, buffer in model.named_buffers():
                self.buffers.append((prefix + name, buffer))
        for index, optimizer in enumerate(optimizers):
            for group_index, group in enumerate(optimizer.param_groups):
                for position, parameter in enumerate(group["params"]):
                    self._parameter(f"optimizer.{index}.{group_index}.{position}", parameter)

    def _parameter(self, name: str, parameter: torch.Tensor) -> None:
        if id(parameter) not in self.parameter_names:
            self.parameter_names[id(parameter)] = name
            self.parameters.append((name, parameter))

    def states(self) -> Iterator[State]:
        """The optimizers' state as it is now."""
        for index, optimizer in enumerate(self.optimizers):
            for owner, entries in optimizer.state.items():
                name = self.parameter_names.get(id(owner), "")
                if not name:
                    name = "other" if isinstance(owner, torch.Tensor) else str(owner)
                for path, value in leaves(entries):
                    yield State(index, path, owner, name, value)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Parameters, buffers and optimizer state by name, as they are now."""
        for name, parameter in self.parameters:
            yield f"param:{name}", parameter
        for name, buffer in self.buffers:
            yield f"buffer:{name}", buffer
        for state in self.states():
            if isinstance(state.value, torch.Tensor):
                yield self.state_name(state), state.value

    def state_name(self, state: State) -> str:
        prefix = f"{state.optimizer}:" if len(self.optimizers) > 1 else ""
        return f"state:{prefix}{state.path}:{state.owner_name}"

    def register(self, storages: StorageTable) -> None:
        """Parameters, buffers and optimizer state; gradients come when they are met."""
        for name, parameter in self.parameters:
            if has_storage(parameter):
                storages.add_entry(parameter, "parameter", f"param:{name}", persistent=True)
        for name, buffer in self.buffers:
            if has_storage(buffer):
                storages.add_entry(buffer, "buffer", f"buffer:{name}", persistent=True)
        for state in self.states():
            if isinstance(state.value, torch.Tensor) and has_storage(state.value):
                storages.add_entry(
                    state.value, "optimizer_state", self.state_name(state), persistent=True
                )
        for index, optimizer in enumerate(self.optimizers):
            for group_index, group in enumerate(optimizer.param_groups):
                for key, value in group.items():
                    if isinstance(value, torch.Tensor):
                        name = f"optimizer.{index}.group.{group_index}.{key}"
                        storages.add_entry(value, "optimizer_state", name, persistent=True)

    def gradients(self) -> dict[int, str]:
        """Storage address of each gradient that exists now, with its name."""
        result: dict[int, str] = {}
        for name, parameter in self.parameters:
            gradient = parameter.grad
            if gradient is not None and has_storage(gradient):
                result.setdefault(storage_address(gradient), f"grad:{name}")
        return result
