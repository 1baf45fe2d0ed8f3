"""The core of Outsize. Texts are the forms of docs/formats; sizes are bytes, times ns, ids indices.

Functions that take `options` refuse unknown keys by name. Long calls run without the GIL.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict

import torch

Tier = Literal["device", "host", "disk"]
Number = bool | int | float

__version__: str

class Error(Exception): ...
class InfeasibleError(Error): ...
class IllegalPlanError(Error): ...
class BadInputError(Error): ...
class CancelledError(Error): ...
class DeviceError(Error): ...
class InternalError(Error): ...

class StepError(DeviceError):
    """A step failed while it ran."""

    undone: bool  # the state, generator included, is what it was before the step
    mixed: list[str]  # otherwise: persistent storages that hold a mix of two steps
    kind: str  # "device", "bad input" (a guard on a tensor's value), "internal", ...
    instruction: int | None

def check_graph(graph: str) -> None: ...
def planner_names() -> list[str]: ...

class Planned(TypedDict):
    plan: str
    planner: str
    step_ns: int
    compute_ns: int
    recompute_ns: int
    stall_ns: int
    bound_ns: int
    floor_bytes: int
    peak: dict[str, int]  # by tier
    extent: dict[str, int]  # by tier: one past the highest address used
    moved_out: int
    moved_in: int
    moved_write: int
    moved_read: int
    reruns: int
    copies: int
    seconds: float
    work: int
    first_plan_seconds: float
    history: list[tuple[float, int]]

def plan(graph: str, profile: str, machine: str, options: dict[str, Any] = ...) -> Planned:
    """options: planner ("outsize"), device, host, disk (the machine's), seed (1), threads (1), work, seconds
    (no limit), allow (of "swap", "recompute", "reorder", "split"; all), border [(storage, tier,
    address)], reserved [(tier, begin, end)], on_better(seconds, step_ns). Ctrl-C stops it."""

class Check(TypedDict):
    ok: bool
    kind: str
    where: str
    witness: str

def check_plan(graph: str, profile: str, plan: str, options: dict[str, Any] = ...) -> Check:
    """`profile` may be "" (no workspaces). options: alignment (64), device, host, disk (the plan's)."""

class TierUse(TypedDict):
    extent: int
    peak_live_bytes: int
    timeline: list[tuple[int, int]]  # (ns, live bytes from then on)

class Simulation(TypedDict):
    step_ns: int
    compute_ns: int
    recompute_ns: int
    stall_ns: int
    busy_ns: dict[str, int]  # by stream
    times: list[tuple[int, int]]  # per instruction: begin, end
    tiers: dict[str, TierUse]
    moved_out: int
    moved_in: int
    moved_write: int
    moved_read: int

def simulate(graph: str, profile: str, machine: str, plan: str) -> Simulation: ...

class Floor(TypedDict):
    bytes: int
    op: int
    peak_program_order: int

def floor(graph: str, profile: str = "") -> Floor: ...

class Holder(TypedDict):
    storage: int
    bytes: int
    made_by: int  # op; -1: there before the step
    last_used: int  # op; -1: no op touches it

class Explanation(TypedDict):
    peak_bytes: int
    peak_op: int
    floor_bytes: int
    floor_op: int
    below_floor: bool  # the budget: then `op` is floor_op, else peak_op
    op: int
    workspace_bytes: int
    holders: list[
        Holder
    ]  # while `op` runs, largest first: what it touches below the floor, else all alive

def explain(graph: str, profile: str, device_bytes: int) -> Explanation: ...

class Bound(TypedDict):
    name: str
    holds_for: str
    ns: int

class Bounds(TypedDict):
    floor_bytes: int
    floor_op: int
    peak_program_order: int
    compute_ns: int
    best_ns: int
    infeasible: str
    bounds: list[Bound]

def bounds(graph: str, profile: str, machine: str, options: dict[str, Any] = ...) -> Bounds:
    """options: device, host, disk (the machine's), swap, recompute, reorder (True), most_slots, seconds."""

class Liveness(TypedDict):
    live_bytes: list[int]  # per op
    touched_by: list[list[int]]  # per storage
    peak_bytes: int
    peak_op: int
    largest_working_set: int
    largest_op: int
    persistent_bytes: int

def liveness(graph: str, profile: str = "") -> Liveness: ...
def machine(name_or_path: str) -> str: ...
def machine_with_links(here: str, links_of: str) -> str: ...
def machine_names() -> list[str]: ...

class Finding(TypedDict):
    kind: str  # "changed input", "output on input", "geometry", "storage bytes"
    op: int
    storage: int
    text: str

class Measured(TypedDict):
    profile: str
    findings: list[Finding]
    storage_bytes: dict[int, int]  # corrections to the graph's storages
    notes: list[str]
    distinct: int
    from_cache: int
    peak_bytes: int
    seconds: float

def measure_profile(
    graph: str,
    entry_tensors: Mapping[int, torch.Tensor] = ...,
    options: dict[str, Any] = ...,
) -> Measured:
    """options: machine, timed_runs, longest_op_ns, evict_bytes, seed, cache_dir, use_cache, progress(done, total)."""

def measure_machine(options: dict[str, Any] = ...) -> str:
    """options: name, disk_dir, copy_bytes, disk_bytes, rounds, progress(what)."""

def install_allocator() -> None:
    """Done at import; once per process."""

class Counters(TypedDict):
    planned_requests: int  # of the last step: served out of the arena
    planned_live: int
    planned_live_peak: int
    planned_highest: int
    default_requests: int  # everything else, since reset_counters
    default_live: int
    default_live_peak: int
    default_limit: int

def counters() -> Counters: ...
def reset_counters() -> None:
    """Default path only; planned ones start anew with each step."""

def set_limit(bytes: int) -> None:
    """The most bytes the default path may have handed out at once; 0: no limit."""

class Report(TypedDict):
    step_ns: int
    copy_in_ns: int
    copy_out_ns: int
    moved_out: int
    moved_in: int
    moved_write: int
    moved_read: int
    swapped: dict[str, int]  # bytes copied, by their storage's role
    rerun_ops: list[int]
    arena_highest: int  # one past the highest byte served, copied, or in a home or input at entry
    requests: int
    live_peak: dict[str, int]  # by tier: most bytes live at once, as executed
    times: list[tuple[int, int]]  # per instruction, if the plan was loaded with record_times
    timeline: list[tuple[int, int]]  # the same: (ns, live device bytes from then on)

class StepResult(TypedDict):
    outputs: dict[int, torch.Tensor]  # by storage: its bytes (uint8), in ordinary memory
    scalars: list[Number | None]  # by scalar of the graph
    report: Report

class Cut(TypedDict):
    op: int
    kind: Literal["items", "elements", "rows", "outputs", "loss"]
    bounds: list[int]

def split(graph: str, options: dict[str, Any]) -> dict[str, Any]:
    """Ops that need more than `largest_bytes` in pieces of equal bits, as far as they can be had.

    options: largest_bytes; workspace_bytes (per op), least_piece_bytes (65536), runs (3), seed, cache_dir,
    use_cache (True). Gives "graph", "cuts", "refused", "proved", "from_cache".
    """

def pointwise_ops() -> list[str]:
    """The pointwise ops that are cut by elements or rows, without "aten." and overload, sorted."""

def row_ops() -> list[str]:
    """The ops that are cut by rows by a rule of their own, sorted."""

def cuts_of(graph: str) -> list[Cut]:
    """The finest cut of each op that may be cut at all."""

def prove_cut(graph: str, cut: Cut, options: dict[str, Any] = ...) -> dict[str, Any]:
    """{"equal", "why"}: whether the op gives the same bits in these pieces on this machine, by running it."""

def apply_cuts(graph: str, cuts: list[Cut]) -> str:
    """The graph with these cuts, proved or not. `run` in a cut: cuts of one number are done piece by piece."""

def held_bytes(graph: str) -> list[int]:
    """Per op, the bytes that must be on the device while it runs, without its workspace."""

def rollback_bytes(graph: str, plan: str) -> int:
    """Bytes that a step of the plan keeps with rollback."""

class Session:
    def __init__(
        self, device_bytes: int, host_bytes: int = 0, disk_bytes: int = 0, disk_dir: str = ""
    ) -> None: ...
    def load(self, graph: str, profile: str, plan: str, options: dict[str, Any] = ...) -> int:
        """Checks and prepares a plan. options: alignment (64), record_times (False), clock_mode (False),
        seed, longest_delay_ns, rollback ("host" or "disk": where steps keep what undoes them), faulty
        (False: `set_fault` can be used). IllegalPlanError, or BadInputError where it can't run here.
        """

    def unload(self, handle: int) -> None: ...
    def step(
        self,
        handle: int,
        inputs: Mapping[int, torch.Tensor] | Iterable[tuple[int, torch.Tensor]] = ...,
        scalars: dict[str, Number] = ...,
        stop: Callable[[], bool] | None = None,
    ) -> StepResult:
        """BadInputError: nothing has run or changed. StepError: see there. `stop` is asked between ops
        whether to stop; what it or a signal's handler raises stops the step and is put in `stop.raised`.
        """

    def set_fault(self, handle: int, call: int, late: bool = False, throws: bool = False) -> None:
        """Tests: the call-th call of the device fails in each step from now on; -1: none does."""

    def device_calls(self, handle: int) -> int:
        """Made by the last step."""

    def failed_guard(self, handle: int, scalars: dict[str, Number]) -> int:
        """Index of the first guard that these inputs fail, or -1."""

    def adopt(self, tensor: torch.Tensor, tier: Tier, address: int) -> None:
        """Copies the bytes of the tensor's storage there and points the storage there."""

    def move(self, moves: list[tuple[torch.Tensor, Tier, int]]) -> None:
        """`adopt` for several, any of whose targets may be the present place of another."""

    def repoint(self, tensor: torch.Tensor, tier: Tier, address: int) -> None:
        """As `adopt` without copying."""

    def release(self, tensor: torch.Tensor) -> None:
        """Back to ordinary memory."""

    def home_of(self, tensor: torch.Tensor) -> tuple[Tier, int, int] | None:
        """(tier, address, bytes) of its storage, if that lies in this session."""

    def at(self, tier: Tier, address: int, bytes: int) -> torch.Tensor:
        """A uint8 tensor on those bytes themselves."""

    def adopted(self) -> list[tuple[Tier, int, int]]: ...
    @property
    def poisoned(self) -> bool: ...
    @property
    def mixed(self) -> list[str]: ...
    def mark_restored(self) -> None: ...
    def set_poison(self, on: bool) -> None:
        """Before each step, device bytes that hold nothing become NaN."""
