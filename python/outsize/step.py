"""`@outsize.step`: the user's training step, run to the same bits inside a byte budget.

    @outsize.step(model, optimizer, budget="6GiB")
    def train_step(batch):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    loss = train_step(batch)

The first call captures the step without running it, measures its ops, plans them and then runs the plan;
later calls run the plan. Another input signature (or a branch that goes another way) is another capture;
all of a model's plans share the homes of its parameters and optimizer state.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import outsize_core

from .budgets import (
    available_disk_bytes,
    available_host_bytes,
    disk_folder,
    format_bytes,
    parse_bytes,
)
from .call import Call, differences, tensors_by_name
from .capture.capture import capture
from .capture.entries import Names
from .capture.result import Capture
from .core import translated
from .errors import BadInputError, CaptureError, OutsizeError
from .forecast import Forecast, StepRecord
from .homes import Homes
from .planning import Budgets, Planner
from .variant import Variant, input_bytes

# Captures kept per step; the one unused for longest goes first.
MOST_VARIANTS = 16
_homes_of: weakref.WeakKeyDictionary[torch.nn.Module, Homes] = weakref.WeakKeyDictionary()


def step(*objects: Any, **options: Any) -> Callable[[Callable[..., Any]], Step]:
    """Decorates a training step.

    objects: the models and optimizers the step uses, each once.
    budget: the most bytes on the device at any moment (``"6GiB"``, ``"6GB"``, bytes, or ``"25%"`` of the
        unplanned peak). Required.
    host: the same for the host tier; default: three quarters of the RAM that is free, nothing with a disk.
    disk: a folder for the disk tier's file, in the host's place (``"/scratch"``).
    planner: ``"outsize"`` or another by name. machine: a preset's name or a file; default: this machine, measured.
    link: copies to and from the host go no faster, for what this machine computes, than over that machine's
        links (``"v100-16gb-pcie3"``, a file): how a plan for a card behaves, tried here.
    seconds, work: limits of the search; seed: of its random numbers.
    rollback: keep what a step writes over in the host tier (with a disk: there), within its budget, and put
        it back if the step fails or is interrupted; the price is in the forecast. Without it a step that fails
        after it has changed something large leaves a mix that has to be restored, and Ctrl-C lets the step
        end first (a second one stops it there and then).
    cache: keep profiles and plans on disk. log: called with a line per notable thing; default: stderr.
    clock, poison: debugging modes: prove at run time that no two streams touch the same bytes unordered;
        fill free memory with NaN bits before each step.

    Raises BadInputError for what can't be taken; nothing is captured before the first call.
    """
    known = {
        "budget": None,
        "host": None,
        "disk": None,
        "planner": "outsize",
        "machine": None,
        "seconds": None,
        "work": None,
        "seed": 1,
        "rollback": False,
        "cache": True,
        "log": None,
        "clock": False,
        "poison": False,
        "link": None,
    }
    for name in options:
        if name not in known:
            raise BadInputError(f"step() has no option {name!r}{_nearest(name, known)}")
    chosen = {**known, **options}
    if chosen["budget"] is None:
        raise BadInputError(
            "step() needs a budget: the most bytes the device may hold, e.g. budget='6GiB'"
        )
    if not isinstance(chosen["rollback"], bool):
        raise BadInputError(
            f"rollback: wanted True or False, had {chosen['rollback']!r}: what is kept lies in the host "
            "tier, or on disk with disk="
        )
    _check_link(chosen)
    if chosen["disk"] is not None:
        chosen["disk"] = disk_folder(chosen["disk"])
        if chosen["host"] is not None:
            raise BadInputError(
                f"step() can't take host={chosen['host']!r} and disk={chosen['disk']!r} together yet: "
                "plans use one tier below the device; give one of the two"
            )
    models = [o for o in objects if isinstance(o, torch.nn.Module)]
    optimizers = [o for o in objects if isinstance(o, torch.optim.Optimizer)]
    for thing in objects:
        if not isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            raise BadInputError(
                f"step() takes modules and optimizers, had {type(thing).__name__}: "
                "put options behind names, as in budget='6GiB'"
            )
    if not models:
        raise BadInputError("step() needs the model that the step trains as its first argument")
    _check_objects(models, optimizers)
    # Read now, so that a slip of the pen is told before the model is captured; shares: of any peak.
    parse_bytes(chosen["budget"], peak_bytes=1 << 60)
    if chosen["host"] is not None:
        parse_bytes(chosen["host"])
    planners = outsize_core.planner_names()
    if chosen["planner"] not in planners:
        raise BadInputError(
            f"step() has no planner {chosen['planner']!r}"
            f"{_nearest(str(chosen['planner']), planners)}"
        )
    return lambda function: Step(function, models, optimizers, chosen)


def _check_link(chosen: dict[str, Any]) -> None:
    link = chosen["link"]
    if link is None:
        return
    for other, why in (
        ("machine", "plans are made for this machine, with those links"),
        ("disk", "those links lie between device and host, and a plan with a disk has no host"),
    ):
        if chosen[other] is not None:
            raise BadInputError(
                f"step() can't take link={link!r} and {other}={chosen[other]!r} together: {why}"
            )
    with translated():
        outsize_core.machine(str(link))


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _check_objects(models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
    devices = {p.device.type for m in models for p in (*m.parameters(), *m.buffers())}
    if devices - {"cpu"}:
        raise BadInputError(
            f"the model lies on {', '.join(sorted(devices))}; this build plans steps on the CPU: "
            "move it with model.cpu()"
        )
    names = {id(p): name for m in models for name, p in m.named_parameters()}
    for optimizer in optimizers:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise BadInputError(
                "LBFGS runs the step's closure as often as the losses ask for: "
                "its ops are not the same from step to step, so there is no plan for it"
            )
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        strange = sum(1 for p in parameters if id(p) not in names)
        if strange:
            raise BadInputError(
                f"{type(optimizer).__name__} has {strange} of {len(parameters)} parameters that are not "
                "the model's: make it from model.parameters() after the last change to the model, "
                "or name the other model too"
            )


def check_decorated(step: Any, use: str) -> None:
    """Raises BadInputError, with how to call it, if what needs a decorated step is given something else."""
    if not isinstance(step, Step):
        name = use.partition("(")[0]
        raise BadInputError(
            f"{name}() takes a step decorated by outsize.step, had {type(step).__name__}: {use}"
        )


# What is being captured or run now, and the steps that were dropped meanwhile.
_working: list[None] = []
_dropped_steps: list[Step] = []


@contextlib.contextmanager
def _at_work() -> Iterator[None]:
    """While a step is captured or run; afterwards those that were dropped meanwhile are closed."""
    _working.append(None)
    try:
        yield
    finally:
        _working.pop()
        while _dropped_steps and not _working:
            with contextlib.suppress(Exception):
                _dropped_steps.pop().close()


class Step:
    """The decorated step. Call it as the function; see `step` for what it does."""

    def __init__(
        self,
        function: Callable[..., Any],
        models: list[torch.nn.Module],
        optimizers: list[torch.optim.Optimizer],
        options: dict[str, Any],
    ) -> None:
        self.function = function
        self.models, self.optimizers = models, optimizers
        self.last: StepRecord | None = None
        self._options = options
        self._log: Callable[[str], None] = options["log"] or _to_stderr
        self._planner = self.planner(options["seconds"])
        self._variants: list[Variant] = []
        self._symbols: frozenset[str] = frozenset()
        self._homes: Homes | None = None
        self._poisoned: list[str] = []
        self._closed = False
        self.__doc__ = getattr(function, "__doc__", None)
        self.__name__ = getattr(function, "__name__", "step")
        self.__wrapped__ = function

    # -- what users call ------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step. Raises StepError if it fails: with the state undone, or poisoned by name."""
        with _at_work():
            call = self._call(args, kwargs)
            homes = self.shared_homes()
            if homes is not None:
                homes.check_restored()
            variant = self._variant(call)
            result, self.last = variant.run(call)
        return result

    def prepare(self, *args: Any, **kwargs: Any) -> Forecast:
        """Captures and plans for these arguments, and runs nothing."""
        with _at_work():
            return self._variant(self._call(args, kwargs)).forecast

    def restored(self) -> None:
        """Says that all that a failed step left mixed has been put back, by whatever means.

        Not needed after load_state_dict of the model and the optimizer: that is seen.
        """
        homes = self.shared_homes()
        if homes is not None:
            homes.restored()

    def close(self) -> None:
        """Gives every tensor its ordinary memory back. The step can't be called afterwards."""
        if self._homes is not None and not self._closed:
            for tensor in self.own_tensors():
                self._homes.release(tensor)
            self._homes.users.discard(self)
            self._homes.clear_strays()
        self._closed = True
        for variant in self._variants:
            variant.unload()
        self._variants.clear()
        for model in self.models:
            if self._homes is not None and not self._homes.users:
                if _homes_of.get(model) is self._homes:
                    _homes_of.pop(model, None)
        self._homes = None

    def __del__(self) -> None:
        """A step that nobody holds any more gives back what it holds, as if closed."""
        if sys.is_finalizing() or getattr(self, "_closed", True):
            return
        if _working:  # storages may not move under a capture or a running step: a little later
            _dropped_steps.append(self)
        else:
            with contextlib.suppress(Exception):
                self.close()

    @property
    def captures(self) -> int:
        """How many captures are kept now."""
        return len(self._variants)

    # -- what the parts of a step ask for -------------------------------------------------------
    def named_tensors(self) -> dict[str, torch.Tensor]:
        """Every persistent tensor there is now, by the name that graphs give its storage."""
        return tensors_by_name(Names(self.models, self.optimizers))

    def say(self, line: str) -> None:
        """A line to the step's log."""
        self._log(line)

    @property
    def budget(self) -> str | int:
        """The device's, as it was asked for."""
        budget: str | int = self._options["budget"]
        return budget

    @property
    def disk(self) -> str | None:
        """The folder of its disk tier, if it has one."""
        folder: str | None = self._options["disk"]
        return folder

    def planner(self, seconds: float | None, **instead: Any) -> Planner:
        """A planner with this step's options, but for those in `instead`, that searches for `seconds`."""
        options = {**self._options, **instead}
        _check_link(options)
        return Planner(
            machine=options["machine"],
            link=options["link"],
            disk_folder=options["disk"],
            planner=options["planner"],
            seconds=seconds,
            work=options["work"],
            seed=options["seed"],
            use_cache=options["cache"],
            rollback=options["rollback"],
            log=self._log,
        )

    def captured(self, *args: Any, **kwargs: Any) -> tuple[Capture, dict[int, torch.Tensor]]:
        """The step captured for these arguments, and its inputs' bytes by storage; nothing is planned."""
        with _at_work():
            call = self._call(args, kwargs)
            captured = self._capture(call)
            return captured, input_bytes(captured, call.flat)

    def recorded(self, undo: Callable[[], None], *args: Any, **kwargs: Any) -> Capture:
        """The step run plainly, for real, its ops put down as they go; `undo` as `capture` has it."""
        with _at_work():
            return self._capture(self._call(args, kwargs), real=True, undo=undo)

    def limits(self, device_bytes: int, peak_bytes: int, **instead: Any) -> Budgets:
        """The budgets of a step that had the model to itself, and these options in place of its own."""
        return _limits({**self._options, **instead}, device_bytes, None, peak_bytes)

    def last_graph(self) -> dict[str, Any]:
        """The graph of the capture used last; empty before the first."""
        return self._variants[-1].capture.graph if self._variants else {}

    def own_tensors(self) -> Iterator[torch.Tensor]:
        """The tensors that this step's plans expect on their homes."""
        yield from self.named_tensors().values()
        for variant in self._variants:
            for storage, tensor in variant.capture.entries.items():
                if variant.capture.graph["storages"][storage]["name"].startswith("constant:"):
                    yield tensor

    def shared_homes(self) -> Homes | None:
        """The memory that this model's steps share, if there is one yet."""
        if self._homes is None:
            for model in self.models:
                self._homes = _homes_of.get(model, self._homes)
        return self._homes

    # -- variants -------------------------------------------------------------------------------
    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        if self._closed:
            raise OutsizeError("this step is closed: decorate the function again")
        return Call(args, kwargs, self.models, self.optimizers)

    def _variant(self, call: Call) -> Variant:
        reason = ""
        for index in reversed(range(len(self._variants))):
            variant = self._variants[index]
            if variant.capture.signature != call.signature:
                continue
            reason = variant.capture.stale(call.args, call.kwargs, call.names)
            if not reason:
                self._variants.append(self._variants.pop(index))
                return variant
            self._note_symbols(variant.capture)
        circumstances = call.circumstances()
        if self._variants:
            reason = reason or differences(self._variants[-1].circumstances, circumstances)
            self._log(f"{self.__name__}: planning again: {reason}")
        self._drop_outdated(call)
        variant = self._make(call)
        variant.circumstances = circumstances
        self._variants.append(variant)
        if len(self._variants) > MOST_VARIANTS:
            self._variants.pop(0).unload()
        return variant

    def _drop_outdated(self, call: Call) -> None:
        """Forgets captures whose tensors have been replaced: they hold on to the old ones."""
        now = dict(call.names.tensors())
        for variant in list(self._variants):
            if any(now.get(name) is not old for name, old in variant.capture.bound.items()):
                self._variants.remove(variant)
                variant.unload()

    def _note_symbols(self, captured: Capture) -> None:
        """Python numbers that changed since a capture become inputs of the next one."""
        for place, value in captured.places:
            now = place.get()
            if type(now) is float and type(value) is float and now != value:
                self._symbols |= {place.path}

    def _capture(self, call: Call, **how: Any) -> Capture:
        _check_objects(self.models, self.optimizers)
        for path, leaf in call.leaves:
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
                raise BadInputError(
                    f"argument {path} lies on {leaf.device}, the model on the CPU: move it there"
                )
        captured = capture(
            self.function,
            call.args,
            call.kwargs,
            models=self.models,
            optimizers=self.optimizers,
            symbols=self._symbols,
            title=self.__name__,
            **how,
        )
        if captured.graph["device_type"] != "cpu":
            raise CaptureError("the step uses another device than the CPU")
        return captured

    def _make(self, call: Call) -> Variant:
        return Variant.make(
            self._capture(call),
            call,
            self._planner,
            self._homes_for,
            self._budgets,
            self._options,
            self,
        )

    def _budgets(self, peak_bytes: int) -> Budgets:
        shared = self.shared_homes()
        device = parse_bytes(self._options["budget"], peak_bytes)
        if shared is not None:
            if device != shared.device_bytes and not self._is_share():
                raise BadInputError(
                    f"the model already has a step with a budget of "
                    f"{format_bytes(shared.device_bytes)}; {self.__name__} asks for "
                    f"{format_bytes(device)}: steps of one model share one memory: "
                    "give both the same, or close() the other first"
                )
            device = shared.device_bytes
            if shared.disk_folder != (self._options["disk"] or ""):
                raise BadInputError(
                    f"the model already has a step {_disk_words(shared.disk_folder)}; {self.__name__} is "
                    f"{_disk_words(self._options['disk'])}: steps of one model share one memory: "
                    "give both the same disk=, or close() the other first"
                )
        return _limits(self._options, device, shared, peak_bytes)

    def _is_share(self) -> bool:
        return str(self._options["budget"]).strip().endswith("%")

    def _homes_for(self, budgets: Budgets) -> Homes:
        homes = self.shared_homes()
        if homes is None:
            homes = Homes(budgets.device, budgets.host, budgets.disk, self._options["disk"] or "")
            homes.session.set_poison(bool(self._options["poison"]))
        self._homes = homes
        homes.users.add(self)
        for model in self.models:
            _homes_of[model] = homes
        return homes


def _limits(
    options: dict[str, Any], device_bytes: int, shared: Homes | None, peak_bytes: int
) -> Budgets:
    return Budgets(
        device=device_bytes,
        host=_host_bytes(options, shared, peak_bytes),
        disk=_disk_bytes(options, shared),
        host_given=options["host"] is not None,
    )


def _disk_bytes(options: dict[str, Any], shared: Homes | None) -> int:
    if options["disk"] is None:
        return 0
    return available_disk_bytes(options["disk"]) if shared is None else shared.disk_bytes


def _host_bytes(options: dict[str, Any], shared: Homes | None, peak_bytes: int) -> int:
    if options["disk"] is not None:
        return 0
    asked = options["host"]
    wanted = None if asked is None else parse_bytes(asked, peak_bytes)
    if shared is not None:
        return shared.host_bytes if wanted is None else min(wanted, shared.host_bytes)
    return available_host_bytes() * 3 // 4 if wanted is None else wanted


def _disk_words(folder: str | None) -> str:
    return f"with disk={folder!r}" if folder else "without a disk"


def _to_stderr(line: str) -> None:
    print(f"outsize: {line}", file=sys.stderr, flush=True)
