"""`rollback=True`: wherever a step fails, the state is that of the last whole step and the next call runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import assert_equal
from step_models import Training, gpt2, mlp
from step_parity import plan_of, state_now

import outsize
import outsize_core


class FaultySession(outsize_core.Session):
    """A session whose plans can be made to fail; `handle` is the one loaded last."""

    def load(self, graph: str, profile: str, plan: str, options: Any = None) -> int:
        self.handle = super().load(graph, profile, plan, {**(options or {}), "faulty": True})
        return self.handle


@pytest.fixture(autouse=True)
def faulty_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outsize_core, "Session", FaultySession)
    yield


def _session(step: outsize.Step) -> FaultySession:
    homes = step.shared_homes()
    assert homes is not None and isinstance(homes.session, FaultySession)
    return homes.session


def _large() -> Training:
    """Parameters that are too large to be kept without rollback."""
    return mlp("adamw", depth=1, width=160, batch=8)


def _scheduled() -> Training:
    return gpt2("sdpa", "adamw", scheduler_inside=True)


def _homes_of(step: outsize.Step) -> dict[str, Any]:
    homes = step.shared_homes()
    assert homes is not None
    return {name: homes.place_of(tensor) for name, tensor in step.named_tensors().items()}


def _fail_at(step: outsize.Step, run: Training, calls: list[int], batch: Any) -> None:
    """A fault at each of these calls of a step, early or late, by an error or an exception."""
    session = _session(step)
    before, homes = state_now(run), _homes_of(step)
    for call in calls:
        session.set_fault(session.handle, call, late=call % 3 != 0, throws=call % 2 == 1)
        with pytest.raises(outsize.StepError, match="injected") as caught:
            step(*batch)
        assert caught.value.undone and not caught.value.mixed, (call, caught.value)
        assert "the step was undone" in str(caught.value)
        assert_equal(before, state_now(run), f"a fault at call {call}")
        assert _homes_of(step) == homes, call
    session.set_fault(session.handle, -1)


def _check(make: Callable[[], Training], pick: Callable[[int], list[int]], **options: Any) -> None:
    """Trains as eager does, with failures at `pick(calls of a step)` before each step but the first."""
    plain, run = make(), make()
    torch.manual_seed(1)
    for batch in plain.batches:
        plain.step(*batch)
    wanted = state_now(plain)
    torch.manual_seed(1)
    step = plan_of(run, rollback=True, **options)
    for batch in run.batches[:2]:  # the second has optimizer state, as the others
        step(*batch)
    for index, batch in enumerate(run.batches[2:]):
        session = _session(step)
        if index == 0:
            _fail_at(step, run, pick(session.device_calls(session.handle)), batch)
        step(*batch)
    assert_equal(wanted, state_now(run), "after failures")
    assert step.last is not None and step.last.forecast.rollback_bytes > 0
    step.close()


def test_a_fault_at_every_call_of_a_step() -> None:
    _check(_large, lambda calls: list(range(calls)), budget="60%")


def test_a_fault_at_every_call_of_a_step_on_disk(tmp_path: Path) -> None:
    _check(_large, lambda calls: list(range(calls)), budget="60%", disk=tmp_path)


def test_faults_anywhere_in_a_larger_step() -> None:
    seed = 20
    draw = random.Random(seed)
    _check(
        _scheduled, lambda calls: sorted(draw.sample(range(calls), 25)), budget="60%", poison=True
    )


def test_the_first_step_fails_and_is_retried() -> None:
    """Nothing is bound before a step has succeeded: no optimizer state, no gradients."""
    run = _large()
    step = plan_of(run, budget="70%", rollback=True)
    step.prepare(*run.batches[0])
    session = _session(step)
    session.set_fault(session.handle, 9, late=True)
    before = state_now(run)
    with pytest.raises(outsize.StepError):
        step(*run.batches[0])
    assert_equal(before, state_now(run), "after the failure")
    assert not run.optimizer.state
    session.set_fault(session.handle, -1)
    step(*run.batches[0])


def test_a_step_that_fails_is_retried_with_a_smaller_batch() -> None:
    """What the large batch left is nothing: the smaller one's step is eager's, to the bit."""
    run, plain = _large(), _large()
    small = tuple(tensor[:4] for tensor in run.batches[1])
    for each, step in (
        (plain, plain.step),
        (run, planned := plan_of(run, budget="80%", rollback=True)),
    ):
        torch.manual_seed(1)
        step(*each.batches[0])
        if each is run:
            planned.prepare(*run.batches[1])
            session = _session(planned)
            large = session.handle
            session.set_fault(large, 12, late=True)
            with pytest.raises(outsize.StepError):
                planned(*run.batches[1])
        step(*small)
        if each is run:
            session.set_fault(large, -1)
        step(*each.batches[2])
    assert_equal(state_now(plain), state_now(run), "after the smaller batch")


def test_without_rollback_the_next_call_says_what_failed() -> None:
    run = _large()
    step = plan_of(run, budget="70%")
    for batch in run.batches[:2]:
        step(*batch)
    session = _session(step)
    last = session.device_calls(session.handle) - 1
    session.set_fault(session.handle, last)  # the copying of outputs: the step itself has run
    with pytest.raises(outsize.StepError, match="copying outputs: injected failure") as caught:
        step(*run.batches[2])
    assert not caught.value.undone and "param:0.weight" in caught.value.mixed
    with pytest.raises(
        outsize.PoisonedError,
        match=r"failed \(copying outputs: injected failure.*load_state_dict.*close\(\).*rollback=True",
    ):
        step(*run.batches[2])


def test_the_shadow_counts_in_the_budget_and_the_forecast() -> None:
    run = _large()
    plain = plan_of(run, budget="100%").prepare(*run.batches[0])
    assert plain.rollback_bytes == 0 and plain.rollback_s == 0
    state = sum(parameter.nbytes for parameter in run.model.parameters())
    forecast = plan_of(run, budget="100%", rollback=True).prepare(*run.batches[0])
    assert forecast.rollback_bytes >= state and forecast.rollback_s > 0
    assert forecast.host_bytes == forecast.rollback_bytes  # nothing is swapped
    with pytest.raises(
        outsize.InfeasibleError, match=r"rollback=True keeps up to .*rollback=False"
    ):
        plan_of(_large(), budget="100%", host=1000, rollback=True).prepare(*run.batches[0])
    with pytest.raises(outsize.BadInputError, match="rollback: wanted True or False, had 'host'"):
        plan_of(run, budget="100%", rollback="host")
