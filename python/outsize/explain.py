"""`outsize.explain`: what sets a step's peak or its floor, and what each way out saves, before any step has run.

    print(outsize.explain(train_step, batch))                          # train_step: decorated by outsize.step
    print(outsize.explain(train_step, batch, budget="2GiB", smaller=(batch[:4],), disk="/scratch"))

It captures the step, measures its ops and plans it anew for each way. Nothing of the user's changes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import outsize_core

from .budgets import disk_folder, format_bytes, parse_bytes
from .core import translated
from .errors import BadInputError, InfeasibleError
from .estimate import SECONDS_PER_BUDGET
from .forecast import Forecast
from .graph_words import Place, place_of
from .planning import Budgets, Form, Planner, Prepared
from .step import Step, check_decorated

_HOLDERS_SHOWN = 8


@dataclass(frozen=True)
class Holder:
    """A storage that lies on the device at the moment that is looked at."""

    name: str  # as graphs name it ("param:wte.weight"); "" for what ops make
    role: str  # "activation", "parameter", ...
    bytes: int
    made_by: Place | None  # None: there before the step
    last_used_by: Place | None  # None: no op touches it

    def __str__(self) -> str:
        made = "there before the step" if self.made_by is None else f"made by {self.made_by}"
        used = "not used" if self.last_used_by is None else f"last used by {self.last_used_by}"
        return f"{format_bytes(self.bytes):>8} {self.name or self.role}, {made}, {used}"


@dataclass(frozen=True)
class Way:
    """One way out, planned at the budget, or else at the least budget at which it has a plan.

    name: of whole ops and alone "host" and "disk" (what waits for its next use lies there), "recompute",
    "smaller batch" and "more budget" (nothing is moved or run again); with all that the step's own tiers
    allow "split" (ops that are large beside the budget in parts of the same bits, which lowers the floor)
    and "all together" (what the step does: whole or split, whichever is faster).
    """

    name: str
    budget_bytes: int  # of the device, at which it was planned
    fits: bool  # in the budget that was asked about
    saves_bytes: int  # unplanned peak less what this plan holds at most
    forecast: Forecast | None  # None: no plan was found
    why: str = ""  # there is none

    def __str__(self) -> str:
        if self.forecast is None:
            return f"{self.name:<15} {'-':>8}  {self.why}"
        slower = self.forecast.step_s / self.forecast.compute_s if self.forecast.compute_s else 1.0
        return (
            f"{self.name:<15} {format_bytes(self.saves_bytes):>8} {format_bytes(self.forecast.floor_bytes):>8} "
            f"{self.forecast.step_s:8.3f} {slower:9.2f} {format_bytes(self.budget_bytes):>8}  "
            f"{'yes' if self.fits else 'no'}"
        )


@dataclass(frozen=True)
class Explanation:
    """Sizes in bytes. `sets` says which op is looked at: the peak's, or below the floor the floor's.

    holders: what lies on the device while that op runs, largest first; with `workspace_bytes`, which is the
    op's own, they add up to the peak or the floor. ways: what saves most first, those without a plan last.
    """

    unplanned_peak_bytes: int
    peak: Place
    floor_bytes: int
    floor: Place
    budget_bytes: int
    sets: Literal["peak", "floor"]
    holders: tuple[Holder, ...]
    workspace_bytes: int
    ways: tuple[Way, ...]

    def way(self, name: str) -> Way:
        """The way of that name. Raises KeyError if it was not planned."""
        for way in self.ways:
            if way.name == name:
                return way
        raise KeyError(name)

    def __str__(self) -> str:
        at = self.peak if self.sets == "peak" else self.floor
        lines = [
            f"unplanned peak {format_bytes(self.unplanned_peak_bytes)}, at {self.peak}",
            f"floor          {format_bytes(self.floor_bytes)}, set by {self.floor}",
            f"budget         {format_bytes(self.budget_bytes)}",
            "",
            f"on the device while {at} runs:",
            *(f"  {holder}" for holder in self.holders[:_HOLDERS_SHOWN]),
        ]
        rest = self.holders[_HOLDERS_SHOWN:]
        if rest:
            lines.append(f"  {format_bytes(sum(h.bytes for h in rest)):>8} in {len(rest)} more")
        if self.workspace_bytes:
            lines.append(f"  {format_bytes(self.workspace_bytes):>8} of workspace, the op's own")
        lines += [
            "",
            f"{'way out':<15} {'saves':>8} {'floor':>8} {'step s':>8} {'x compute':>9} {'budget':>8}  at yours",
            *(str(way) for way in self.ways),
        ]
        return "\n".join(lines)


def explain(
    step: Step,
    *args: Any,
    budget: str | int | None = None,
    smaller: tuple[Any, ...] | None = None,
    disk: str | None = None,
    **kwargs: Any,
) -> Explanation:
    """What sets the peak and the floor of `step` on these arguments, and what each way out saves.

    step: decorated by `outsize.step`. budget: bytes of the device ("6GiB") or a share of the unplanned peak
    ("50%"); the step's own, if not given. smaller: the step's arguments at a smaller batch, as a tuple; disk:
    a folder: each is a way out only where it is given (the folder also where the step has a disk). Each way
    is planned for up to a few seconds, alone, at the budget or else at the least one that would do.
    Raises BadInputError for a step that isn't decorated and options that can't be taken, and CaptureError
    for what can't be captured.
    """
    check_decorated(step, "explain(outsize.step(model, optimizer, budget='6GiB')(function), batch)")
    if smaller is not None and not isinstance(smaller, tuple):
        raise BadInputError(
            f"explain(smaller=...) takes the step's arguments as a tuple, had {type(smaller).__name__}: "
            "smaller=(batch,)"
        )
    budget = step.budget if budget is None else budget
    parse_bytes(budget, peak_bytes=1 << 60)
    folder = step.disk if disk is None else disk_folder(disk)
    if folder is not None:
        step.planner(SECONDS_PER_BUDGET, host=None, disk=folder)  # refuses what goes with no disk
    whole = _Profiled(step, args, kwargs)
    peak_bytes = whole.peak_bytes()
    device_bytes = parse_bytes(budget, peak_bytes)

    def planned(name: str, form: Form, allow: Sequence[str] | None, **instead: Any) -> Way:
        of = whole if name != "smaller batch" else _Profiled(step, smaller or (), kwargs)
        return _way(_Question(name, of, allow, form, instead, device_bytes, peak_bytes))

    ways = [
        planned("all together", "fastest", None),
        planned("host", "whole", ["swap"], disk=None),
        planned("recompute", "whole", ["recompute"]),
        planned("split", "split", None),
        planned("more budget", "whole", [], planner="keep"),
    ]
    if folder is not None:
        ways.append(planned("disk", "whole", ["swap"], host=None, disk=folder))
    if smaller is not None:
        ways.append(planned("smaller batch", "whole", [], planner="keep"))
    return _described(*whole.texts, device_bytes, ways)


class _Profiled:
    """A step captured and measured on some arguments."""

    def __init__(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step = step
        captured, self.inputs = step.captured(*args, **kwargs)
        self.texts = step.planner(SECONDS_PER_BUDGET).profile(captured.graph, self.inputs)

    def peak_bytes(self) -> int:
        with translated():
            return int(outsize_core.liveness(*self.texts)["peak_bytes"])


@dataclass(frozen=True)
class _Question:
    """What one way is asked: `allow` and `form` as in `Planner.plan`, `instead` as in `Step.planner`."""

    name: str
    of: _Profiled
    allow: Sequence[str] | None
    form: Form
    instead: dict[str, Any]
    device_bytes: int
    peak_bytes: int  # of the step as it is


def _way(asked: _Question) -> Way:
    """Plans it at the budget, or else at the least that would do for splits made for the budget."""
    step = asked.of.step
    planner = step.planner(SECONDS_PER_BUDGET, **asked.instead)
    at = asked.device_bytes
    try:
        try:
            prepared = _prepared(asked, planner, at)
        except InfeasibleError as error:
            if error.least_bytes is None or error.least_bytes <= at:
                raise
            at = error.least_bytes
            prepared = _prepared(asked, planner, at)
    except InfeasibleError as error:
        return Way(asked.name, at, False, 0, None, str(error))
    saves = asked.peak_bytes - prepared.forecast.peak_bytes
    return Way(asked.name, at, at <= asked.device_bytes, saves, prepared.forecast)


def _prepared(asked: _Question, planner: Planner, device_bytes: int) -> Prepared:
    def limits(peak_bytes: int) -> Budgets:
        found = asked.of.step.limits(asked.device_bytes, peak_bytes, **asked.instead)
        return replace(found, device=device_bytes)

    return planner.plan(
        asked.of.texts,
        asked.of.inputs,
        limits,
        [],
        [],
        allow=asked.allow,
        form=asked.form,
        split_for_bytes=asked.device_bytes,
    )


def _described(
    graph_text: str, profile_text: str, device_bytes: int, ways: list[Way]
) -> Explanation:
    graph = json.loads(graph_text)
    with translated():
        found = outsize_core.explain(graph_text, profile_text, device_bytes)

    def place(op: int) -> Place | None:
        return place_of(op, graph["ops"][op]) if op >= 0 else None

    def holder(held: outsize_core.Holder) -> Holder:
        storage = graph["storages"][held["storage"]]
        return Holder(
            name=storage.get("name", ""),
            role=storage["role"],
            bytes=held["bytes"],
            made_by=place(held["made_by"]),
            last_used_by=place(held["last_used"]),
        )

    return Explanation(
        unplanned_peak_bytes=found["peak_bytes"],
        peak=place_of(found["peak_op"], graph["ops"][found["peak_op"]]),
        floor_bytes=found["floor_bytes"],
        floor=place_of(found["floor_op"], graph["ops"][found["floor_op"]]),
        budget_bytes=device_bytes,
        sets="floor" if found["below_floor"] else "peak",
        holders=tuple(holder(held) for held in found["holders"]),
        workspace_bytes=found["workspace_bytes"],
        ways=tuple(sorted(ways, key=lambda way: (way.forecast is None, -way.saves_bytes))),
    )
