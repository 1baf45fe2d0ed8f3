"""One capture from the inside: what is there before, what the step does, and whether it is sealed.

    Session(step, (batch,), {}, names, real=False, ...).run()   # a Capture, or a CaptureError

`conclude.py` has what follows the step: outputs, gradients, new state and the graph.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as torch_optimizer
from torch.utils.weak import WeakIdKeyDictionary

from outsize.capture import survivors
from outsize.capture.arguments import flatten
from outsize.capture.conclude import OUTSIDE, conclude
from outsize.capture.entries import Names
from outsize.capture.patches import patched
from outsize.capture.recorder import DYNAMIC_SHAPE, Recorder
from outsize.capture.result import Capture, Replay, ScalarInput
from outsize.capture.scalars import Number, ScalarTable, node_of, symbolic
from outsize.capture.seal import Change, Place, Seal, is_library
from outsize.capture.shadow import Shadow
from outsize.capture.signature import signature
from outsize.capture.sites import Site, Sites
from outsize.capture.storages import (
    StorageTable,
    extent,
    has_storage,
    input_begin,
    storage_address,
)
from outsize.errors import CaptureError

# Arguments whose value is all there is to them.
PLAIN = (torch.Tensor, bool, int, float, str, torch.dtype, torch.device, type(None))
_constant_names: WeakIdKeyDictionary = WeakIdKeyDictionary()
_constant_count = itertools.count()


def _rate_reader(optimizer: torch.optim.Optimizer, group: int) -> Callable[[list[Any]], Number]:
    # Through the optimizer: load_state_dict makes new groups.
    return lambda flat: optimizer.param_groups[group]["lr"]


def _place_reader(place: Place) -> Callable[[list[Any]], Number]:
    return lambda flat: place.get()


def _constant_name(tensor: torch.Tensor) -> str:
    """A name for a tensor that no path leads to, the same for its whole life in this process."""
    if tensor not in _constant_names:
        _constant_names[tensor] = str(next(_constant_count))
    return str(_constant_names[tensor])


class UnknownTensor(BaseException):
    """A real tensor turned up that no object shows; a second capture looks first which exist."""


class SymbolicSize(BaseException):
    """An op wants a plain size where Python has a number that it read from the batch."""


class Reassigned(BaseException):
    """The step gave Python numbers other values; a trial from there tells settings from counters."""

    def __init__(self, changes: list[Change]) -> None:
        super().__init__()
        self.changes = changes


@dataclass(frozen=True)
class Learned:
    """What earlier attempts at the same capture have found.

    known_before: addresses of the storages that were alive before it. plain_sizes: integers that the batch
    alone decides are plain numbers. settings: paths of numbers that the step sets and a trial found to settle.
    """

    known_before: set[int] | None = None
    plain_sizes: bool = False
    settings: frozenset[str] = frozenset()


class Session:
    """One capture. The methods run once, in the order of `run`."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: Names,
        real: bool,
        symbols: frozenset[str],
        title: str,
        check_writes: bool,
        learned: Learned,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.learned = learned
        self.names, self.real, self.symbols, self.title = names, real, symbols, title
        self.flat = flatten(args, kwargs)
        self.signature = signature(args, kwargs, names)
        self.fake_mode = None if real else FakeTensorMode(allow_non_fake_inputs=False)
        self.storages = StorageTable(self.fake_mode)
        self.scalars = ScalarTable()
        self.sites = Sites(names.modules, names.parameter_names)
        self.shadow = Shadow(self.storages, lambda: self.recorder.ops, self.scalars.present)
        self.recorder = Recorder(
            self.storages,
            self.scalars,
            self.sites,
            self.fake_mode,
            self.unknown_tensor,
            self._fresh_constant,
            self.shadow.number,
        )
        self.recorder.check_writes = check_writes
        self.recorder.plain_integers = learned.plain_sizes
        self.inputs: list[tuple[int, int, int]] = []  # storage, leaf, bytes before it
        self.scalar_inputs: list[ScalarInput] = []
        self.replays: list[Replay] = []
        self.stepped: list[torch.optim.Optimizer] = []
        self.lifted: dict[str, torch.Tensor] = {}
        self.seeded: tuple[str, Site] | None = None
        self.drawn: dict[str, tuple[str, Site]] = {}  # the first call of each library in Python

    # -- the order ------------------------------------------------------------------------------
    def run(self) -> Capture:
        self._check_arguments()
        roots: dict[str, Any] = {"step": self.function}
        # What `flatten` does not open is looked at like the function's own surroundings.
        known = [*self.names.models, *self.names.optimizers]
        for path, leaf in self.flat:
            if not isinstance(leaf, PLAIN) and not any(leaf is thing for thing in known):
                roots[f"argument.{path}"] = leaf
        roots["arguments"] = [self.args, self.kwargs]
        many = len(self.names.models) > 1
        for index, model in enumerate(self.names.models):
            roots[f"model.{index}" if many else "model"] = model
        for index, optimizer in enumerate(self.names.optimizers):
            roots[f"optimizer.{index}"] = optimizer
        self.seal = Seal(roots, unguarded=("arguments",))
        self.gradients_before = [(p, p.grad) for _, p in self.names.parameters]
        self.states_before = {
            (s.optimizer, id(s.owner), s.path): s.value for s in self.names.states()
        }
        self.bound = dict(self.names.tensors())
        self.gradient_names = self.names.gradients()
        self._register_entries()
        generators = self._generators()
        restored = False
        try:
            args, kwargs = self._with_scalars()
            with self._outer_patches(), self.sites, self.recorder:
                result = self._called(args, kwargs)
            self.recorder.settle_plain()
            captured = conclude(self, result)
            if not self.real:
                del result, args, kwargs
                self._check_sealed(generators, captured)
                self._restore()
                restored = True
                self._check_survivors()
            if self.real:
                self._put_scalars_back()
            self._forget()
            return captured
        finally:
            if self.real:
                self._put_scalars_back()
            elif not restored:
                self._restore()
            for generator, state in generators if not self.real else []:
                generator[1](state)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self.function(*args, **kwargs)
        except RuntimeError as error:
            if "expected to contain only concrete integers" not in str(error):
                raise
            if not self.recorder.plain_integers:
                raise SymbolicSize from None
            raise CaptureError(
                "the step makes a size from tensor data", str(self.sites.now()), DYNAMIC_SHAPE
            ) from None

    def _forget(self) -> None:
        """The guards keep this session; it must not keep the batch and old gradients with it."""
        self.args, self.kwargs, self.flat = (), {}, []
        self.gradients_before, self.states_before = [], {}
        self.seal.forget()

    # -- before ---------------------------------------------------------------------------------
    def _check_arguments(self) -> None:
        for path, leaf in self.flat:
            if isinstance(leaf, numpy.ndarray):
                raise CaptureError(
                    f"argument {path} is a NumPy array",
                    way_out="pass torch.from_numpy(array)",
                )

    def _register_entries(self) -> None:
        self.names.register(self.storages)
        spans: dict[int, list[int]] = {}
        for index, (_, leaf) in enumerate(self.flat):
            if not isinstance(leaf, torch.Tensor) or not has_storage(leaf):
                continue
            first, last = extent(leaf)
            span = spans.setdefault(storage_address(leaf), [index, first, last])
            if leaf.numel():
                span[1:] = [min(span[1], first), max(span[2], last)]
        for index, first, last in spans.values():
            path, leaf = self.flat[index]
            if self.storages.find(leaf) is not None:
                continue
            before = extent(leaf)[0] - first
            begin = input_begin(leaf, before)
            storage = self.storages.add_entry(
                leaf, "input", f"input:{path}", persistent=False, begin=begin, end=last
            )
            self.inputs.append((storage, index, before))

    def _scalar_input(self, name: str, present: Number, read: Callable[[list[Any]], Number]) -> Any:
        node = self.scalars.input(name, present)
        assert node.id is not None
        self.scalar_inputs.append(ScalarInput(node.id, name, read))
        return symbolic(node)

    def _with_scalars(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Learning rates, float arguments and chosen Python numbers become inputs of the graph."""
        for index, optimizer in enumerate(self.names.optimizers):
            for group_index, group in enumerate(optimizer.param_groups):
                rate = group.get("lr")
                if isinstance(rate, (int, float)) and not isinstance(rate, bool):
                    group["lr"] = self._scalar_input(
                        f"optimizer.{index}.group.{group_index}.lr",
                        rate,
                        _rate_reader(optimizer, group_index),
                    )
        self.rates = [g.get("lr") for o in self.names.optimizers for g in o.param_groups]
        for place in self.seal.places():
            value = place.before()
            if place.path in self.symbols and type(value) in (int, float):
                place.set(
                    self._scalar_input(
                        f"python:{place.path}:{len(self.scalar_inputs)}",
                        value,
                        _place_reader(place),
                    )
                )
        leaf_index = {path: index for index, (path, _) in enumerate(self.flat)}

        def argument(path: str, value: Any) -> Any:
            if type(value) is not float:
                return value
            index = leaf_index[path]
            return self._scalar_input(f"input:{path}", value, lambda flat: flat[index])

        args = tuple(argument(str(i), value) for i, value in enumerate(self.args))
        return args, {name: argument(name, value) for name, value in self.kwargs.items()}

    def _generators(self) -> list[tuple[tuple[str, Callable[[Any], Any]], Any]]:
        return [
            (("random", random.setstate), random.getstate()),
            (("numpy.random", numpy.random.set_state), numpy.random.get_state()),
            (("torch", torch.set_rng_state), torch.get_rng_state()),
        ]

    @contextlib.contextmanager
    def _outer_patches(self) -> Iterator[None]:
        torch.clear_autocast_cache()
        scheduler = None if self.real else self._scheduler_stepped
        with patched(
            self._read,
            self._text,
            self._reseeded,
            self._drew,
            self._made_from_data,
            scheduler,
            fake=not self.real,
        ):
            hooks = torch_optimizer
            handle = hooks.register_optimizer_step_pre_hook(self._optimizer_stepped)
            try:
                yield
            finally:
                handle.remove()
                torch.clear_autocast_cache()

    # -- during ---------------------------------------------------------------------------------
    def unknown_tensor(self, tensor: torch.Tensor, op: str, site: Site) -> int:
        """A real tensor that no model, optimizer or argument showed: a closure's, or made just now."""
        address = storage_address(tensor)
        gradient = self.gradient_names.get(address)
        if gradient is not None:
            return self.storages.add_entry(tensor, "gradient", gradient, persistent=True)
        path = self.seal.tensors.get(id(tensor), "")
        if not path and not self.real and address not in self.seal.storages:
            if self.learned.known_before is None:
                raise UnknownTensor
            if address not in self.learned.known_before:
                raise self._unseen("from data that PyTorch does not see", site)
        name = f"constant:{path or _constant_name(tensor)}"
        return self.storages.add_entry(tensor, "constant", name, persistent=True)

    def _unseen(self, how: str, site: Site) -> CaptureError:
        return CaptureError(
            f"the step makes a tensor {how}",
            str(site),
            "make it before the step and pass it as an argument",
        )

    def _made_from_data(self, name: str) -> None:
        if not self.real:
            raise self._unseen(f"by torch.{name}", self.sites.now())

    def _fresh_constant(self, tensor: torch.Tensor, site: Site) -> torch.Tensor:
        copy = tensor.clone()
        content = copy.reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
        text = f"{copy.dtype}{tuple(copy.size())}{copy.stride()}".encode()
        digest = hashlib.sha256(text + content).hexdigest()[:16]
        known = self.lifted.get(digest)
        if known is not None:
            return known
        self.lifted[digest] = copy
        self.storages.add_entry(copy, "constant", f"constant:{digest}", persistent=True)
        return copy

    def _read(self, method: str, tensor: torch.Tensor) -> None:
        if isinstance(tensor, FakeTensor) or self.storages.find(tensor) is not None:
            if not self.real:
                raise CaptureError(
                    f"the step reads tensor data into Python by Tensor.{method}()",
                    str(self.sites.now()),
                    OUTSIDE,
                )

    def _text(self, value: Any) -> Any:
        """Refuses text of what is known only later; the number itself where a library, which keeps such text
        for its error messages, formats one that the batch alone decides. Then the capture holds for it.
        """
        node = node_of(value)
        ours = node is not None and node.table is self.scalars
        if is_library(self.sites.now().file):
            if ours and node is not None and node.present() is not None:
                return node.guard_plain()
            if isinstance(value, FakeTensor) and value.dim() == 0 and not self.real:
                return value.item()  # formatted in its turn
        if ours or isinstance(value, torch.Tensor) and not self.real:
            what = "a number" if ours else "a tensor"
            raise CaptureError(
                f"the step prints or formats {what} that is known only while it runs",
                str(self.sites.now()),
                "return it and print it after the step",
            )
        return None

    def _reseeded(self, name: str) -> None:
        self.seeded = self.seeded or (name, self.sites.now())

    def _drew(self, library: str, name: str) -> None:
        self.drawn.setdefault(library, (f"{library}.{name}", self.sites.now()))

    def _scheduler_stepped(
        self, scheduler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        what = f"{type(scheduler).__name__}.step"
        for value in [*args, *kwargs.values()]:
            if isinstance(value, torch.Tensor) or node_of(value) is not None:
                raise CaptureError(
                    f"the step calls {what} with a number that is known only while it runs",
                    str(self.sites.now()),
                    "call it after the step, with what the step returns",
                )
        self.replays.append(Replay(what, lambda: scheduler.step(*args, **kwargs)))

    def _optimizer_stepped(self, optimizer: Any, *_: Any) -> None:
        if self.replays:
            raise CaptureError(
                f"the step steps an optimizer after {self.replays[-1].what}",
                str(self.sites.now()),
                "step the scheduler last, or after the step",
            )
        if not any(optimizer is known for known in self.names.optimizers):
            raise CaptureError(
                f"the step steps an optimizer ({type(optimizer).__name__}) that was not given",
                str(self.sites.now()),
                "name it beside the others",
            )
        self.stepped.append(optimizer)

    # -- the seal -------------------------------------------------------------------------------
    def _check_sealed(self, generators: list[Any], captured: Capture) -> None:
        now = self._generators()
        for ((name, _), before), (_, after) in zip(generators, now):
            same = torch.equal(before, after) if name == "torch" else str(before) == str(after)
            if not same:
                call, site = self.drawn.get(name, ("", ""))
                raise CaptureError(
                    f"the step draws from {name}'s global generator, in Python"
                    + (f", by {call}()" if call else ""),
                    str(site),
                    "draw before the step and pass the result as an argument",
                )
        rates = [g.get("lr") for o in self.names.optimizers for g in o.param_groups]
        for before, after in zip(self.rates, rates):
            if before is not after:
                raise CaptureError(
                    "the step assigns a group's learning rate", way_out="assign it outside the step"
                )
        self.rates = []
        self._put_scalars_back()
        reassigned: list[Change] = []
        for change in self.seal.changes():
            path = change.path
            if path.startswith("optimizer.") and (
                ".state" in path or path.endswith(("._opt_called", "._step_count"))
            ):
                continue
            if "._per_optimizer_states" in path:
                continue  # a GradScaler's stages: its update() ends where it began
            number = change.number and self.seal.guards(change.place)
            if number and path not in self.learned.settings:
                reassigned.append(change)
                continue
            if not change.once and not number:
                raise self._changes_state(change)
            captured.replays.append(Replay(str(change), change.repeat))
        if reassigned:
            raise Reassigned(reassigned)

    def _changes_state(self, change: Change) -> CaptureError:
        what = f"the step changes Python state: {change}"
        if not isinstance(change.now, torch.Tensor):
            return CaptureError(what, way_out=OUTSIDE)
        made = self.recorder.made_at(change.now)
        written = "write into the tensor that is there (copy_())"
        if change.now.requires_grad:
            what += " and would keep the step's autograd graph"
            written += ", of a value without graph (detach())"
        return CaptureError(what, made, f"{written}, or {OUTSIDE}")

    def _put_scalars_back(self) -> None:
        groups = {id(group) for o in self.names.optimizers for group in o.param_groups}
        for container in self.seal.containers:
            if id(container.object) in groups and "lr" in container.copy:
                container.object["lr"] = container.copy["lr"]
        for place in self.seal.places():
            if place.path in self.symbols:
                place.set(place.before())

    def _restore(self) -> None:
        for parameter, gradient in self.gradients_before:
            if parameter.grad is not gradient:
                parameter.grad = gradient
        self.seal.restore()
        for tensor, version, requires_grad in self.recorder.touched.values():
            if tensor.grad_fn is not None and not requires_grad:
                tensor.detach_()
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
        self.recorder.touched.clear()

    def _check_survivors(self) -> None:
        self.storages.release()
        if not self.storages.alive() and not self.scalars.alive():
            return
        gc.collect()
        if self.storages.alive() or self.scalars.alive():
            found = survivors.find(self.fake_mode, self.scalars)
            raise CaptureError(
                f"after the step {found} still holds a tensor or number of it", way_out=OUTSIDE
            )
