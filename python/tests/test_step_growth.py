"""Sixty planned steps take no more memory, descriptors, threads or time in Python than ten."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from step_models import mlp
from step_parity import plan_of

import outsize
import outsize_core


def _resident_bytes() -> int:
    ctypes.CDLL(None).malloc_trim(0)  # what other tests freed is not ours
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_sixty_steps_do_not_grow() -> None:
    """Two signatures by turns, losses read and dropped: what a training loop does."""
    run = mlp("adamw", depth=4, width=128, batch=64)
    step = plan_of(run, budget="60%")
    short = tuple(tensor[:9] for tensor in run.batches[0])
    size = sum(p.numel() * 4 for p in run.model.parameters())
    for _ in range(10):
        step(*run.batches[0])
        step(*short)
    gc.collect()
    outsize_core.reset_counters()
    before = _resident_bytes(), _descriptors(), _threads(), len(gc.get_objects())
    held = outsize_core.counters()["default_live"]
    for index in range(60):
        loss = step(*(short if index % 5 == 4 else run.batches[index % 5]))
        loss.item()
    del loss
    gc.collect()
    assert step.captures == 3
    assert _descriptors() == before[1] and _threads() == before[2]
    # A copy of the state leaked in each step would be 60 times its size.
    assert _resident_bytes() - before[0] < max(60 * size // 2, 8 << 20)
    assert abs(len(gc.get_objects()) - before[3]) < 500
    assert abs(outsize_core.counters()["default_live"] - held) < 64 << 10


def _file_blocks() -> int:
    """Blocks on disk of the nameless files that this process has open."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            status = os.stat(f"/proc/self/fd/{descriptor}")
        except OSError:  # the listing's own
            continue
        found += status.st_blocks if status.st_nlink == 0 else 0
    return found


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_two_hundred_steps_below_the_device_do_not_grow(tier: str, tmp_path: Path) -> None:
    """A step that swaps and can be undone: nothing grows on the device, in the tier, or beside them."""
    run = mlp("adamw", depth=2, width=96, batch=64)
    options: dict[str, Any] = {"disk": tmp_path} if tier == "disk" else {}
    step = plan_of(run, budget="55%", rollback=True, **options)
    for _ in range(20):
        step(*run.batches[0])
    assert step.last is not None and sum(step.last.moved.values()) > 0
    assert step.last.forecast.rollback_bytes > 0
    peak = step.last.peak_bytes
    gc.collect()
    outsize_core.reset_counters()
    held = outsize_core.counters()["default_live"]
    before = _resident_bytes(), _descriptors(), _threads(), _file_blocks()
    for index in range(200):
        step(*run.batches[index % 5])
        assert step.last.peak_bytes == peak
    gc.collect()
    assert (_descriptors(), _threads(), _file_blocks()) == before[1:]
    # A page leaked in each step would be 800 KiB.
    assert _resident_bytes() - before[0] < 512 << 10
    assert abs(outsize_core.counters()["default_live"] - held) < 64 << 10


def test_closed_steps_leave_nothing() -> None:
    def once() -> None:
        run = mlp("sgd", depth=1)
        step = plan_of(run, budget="90%")
        for batch in run.batches[:2]:
            step(*batch)
        step.close()

    once()
    gc.collect()
    before = _descriptors(), _threads()
    for _ in range(5):
        once()
    gc.collect()
    assert (_descriptors(), _threads()) == before


def test_a_step_dropped_while_another_is_captured_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may run at any moment; the first model's tensors move only when nothing is under way."""
    run, other = mlp("sgd", depth=1), mlp("adamw", depth=1)
    first = plan_of(run, budget="90%")
    first(*run.batches[0])
    homes = first.shared_homes()
    assert homes is not None
    first.cycle = first  # type: ignore[attr-defined]
    held = [p.detach().clone() for p in run.model.parameters()]
    module = sys.modules["outsize.step"]
    under_way: list[bool] = []
    close = outsize.Step.close

    def watched(step: outsize.Step) -> None:
        under_way.append(bool(module._working))
        close(step)

    monkeypatch.setattr(outsize.Step, "close", watched)
    plain = other.step

    def collecting(*batch: torch.Tensor) -> Any:
        gc.collect()
        return plain(*batch)

    step = outsize.step(other.model, other.optimizer, budget="64MiB", log=lambda line: None)(
        collecting
    )
    gc.disable()
    try:
        del first
        step.prepare(*other.batches[0])
    finally:
        gc.enable()
    assert under_way == [False]
    assert all(homes.place_of(p) is None for p in run.model.parameters())
    assert all(map(torch.equal, held, run.model.parameters()))
    step.close()


def test_dropped_steps_leave_nothing() -> None:
    """Neither closed nor held: the model's tensors lie in memory of their own again, with their bits."""
    run = mlp("sgd", depth=1)
    gc.collect()
    before = _descriptors(), _threads()
    for _ in range(3):
        step = plan_of(run, budget="90%")
        step(*run.batches[0])
        homes = step.shared_homes()
        assert homes is not None
        assert all(homes.place_of(p) is not None for p in run.model.parameters())
        held = [p.detach().clone() for p in run.model.parameters()]
        dropped = weakref.ref(step)
        del step
        gc.collect()
        assert dropped() is None
        assert all(homes.place_of(p) is None for p in run.model.parameters())
        assert all(map(torch.equal, held, run.model.parameters()))
        del homes
        gc.collect()
        assert (_descriptors(), _threads()) == before


class Timed:
    """A session that adds up the CPU time this thread spends in its steps."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.inside = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def step(self, *args: Any) -> Any:
        begun = time.thread_time()
        try:
            return self.session.step(*args)
        finally:
            self.inside += time.thread_time() - begun


def _millisecond() -> float:
    """CPU time of a loop that takes a millisecond where the overhead below is 0.4 of one."""
    slots: dict[int, int] = {}
    begun = time.thread_time()
    for i in range(35_000):
        slots[i & 63] = i
    return time.thread_time() - begun


def test_little_time_outside_the_core() -> None:
    """A step of a tiny perceptron spends less than a millisecond (0.4, measured) outside the core.

    CPU time, and a millisecond by the machine's pace while the test runs: what else runs counts for nobody.
    """
    run = mlp("adamw", depth=2)
    step = plan_of(run, budget="100%")
    for batch in run.batches[:3]:
        step(*batch)
    homes = step.shared_homes()
    assert homes is not None
    homes.session = timed = Timed(homes.session)  # type: ignore[assignment]
    outside, millisecond = [], []
    for _ in range(30):
        timed.inside = 0.0
        begun = time.thread_time()
        step(*run.batches[0])
        outside.append(time.thread_time() - begun - timed.inside)
        millisecond.append(_millisecond())
    assert sorted(outside)[3] < sorted(millisecond)[3], (sorted(outside), sorted(millisecond))
    assert torch.get_num_threads() == 1
