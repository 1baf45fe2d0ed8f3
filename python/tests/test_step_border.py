"""What users do between steps, by any means: each run equals eager doing the same."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import same
from step_models import STEPS, Training, mlp, plain_step
from step_parity import Log, compare, plan_of, train
from torch import nn
from torch.nn import functional

import outsize
import outsize_core
from outsize.planning import Planner

Between = Callable[[int, Training], None]


def _weight(run: Training) -> torch.nn.Parameter:
    weight = run.model[0].weight
    assert isinstance(weight, torch.nn.Parameter)
    return weight


def clamp_data(index: int, run: Training) -> None:
    for parameter in run.model.parameters():
        parameter.data.clamp_(-0.05, 0.05)


def write_through_numpy(index: int, run: Training) -> None:
    array = _weight(run).detach().numpy()
    array[index, :] = 0.25
    array *= 0.5


def write_state_through_numpy(index: int, run: Training) -> None:
    for state in run.optimizer.state.values():
        state["exp_avg"].numpy()[...] *= 0.5


def assign_data(index: int, run: Training) -> None:
    weight = _weight(run)
    weight.data = torch.full_like(weight, 0.01 * index)


def load_plain(index: int, run: Training) -> None:
    if index == 2:
        saved = {name: value * 0.5 for name, value in run.model.state_dict().items()}
        run.model.load_state_dict(saved)


def load_by_assignment(index: int, run: Training) -> None:
    """Other tensors become the model's; the optimizer is given them, each with the state of the one before it."""
    if index == 2:
        old = list(run.model.parameters())
        saved = {name: value.clone() * 0.5 for name, value in run.model.state_dict().items()}
        run.model.load_state_dict(saved, assign=True)
        new = list(run.model.parameters())
        run.optimizer.param_groups[0]["params"] = new
        states = [run.optimizer.state.pop(parameter) for parameter in old]
        run.optimizer.state.update(zip(new, states, strict=True))


def load_both(index: int, run: Training) -> None:
    """Model and optimizer from a checkpoint of an earlier step, learning rate included."""
    if index == 1:
        run.others_saved = copy.deepcopy((run.model.state_dict(), run.optimizer.state_dict()))
    if index == 3:
        model, optimizer = copy.deepcopy(run.others_saved)
        optimizer["param_groups"][0]["lr"] = 0.003
        run.model.load_state_dict(model)
        run.optimizer.load_state_dict(optimizer)


def zero_in_place(index: int, run: Training) -> None:
    run.optimizer.zero_grad(set_to_none=False)


def change_rate(index: int, run: Training) -> None:
    run.optimizer.param_groups[0]["lr"] = 0.01 / (index + 1)


def change_decay(index: int, run: Training) -> None:
    if index == 3:
        run.optimizer.param_groups[0]["weight_decay"] = 0.5


def forget_state(index: int, run: Training) -> None:
    if index == 3:
        for parameter in list(run.optimizer.state):
            del run.optimizer.state[parameter]


def set_gradients(index: int, run: Training) -> None:
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)


def own_draws(index: int, run: Training) -> None:
    torch.rand(index + 1)


def eval_by_hand(index: int, run: Training) -> None:
    run.model.eval()
    with torch.no_grad():
        run.seen = getattr(run, "seen", 0) + run.model(run.batches[0][0]).sum()
        _weight(run).mul_(1 + run.seen.sign() * 0.01)
    run.model.train()


WRITES: list[Between] = [
    clamp_data,
    write_through_numpy,
    write_state_through_numpy,
    assign_data,
    load_plain,
    load_by_assignment,
    load_both,
    zero_in_place,
    change_rate,
    change_decay,
    forget_state,
    set_gradients,
    own_draws,
    eval_by_hand,
]


@pytest.mark.parametrize("between", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("share", ["100%", "65%"])
def test_what_is_written_between_steps_counts(between: Between, share: str) -> None:
    make = _accumulating if between in (zero_in_place, set_gradients) else _plain
    wanted = train(make, between=between)
    compare(wanted, train(make, between=between))
    _differ(wanted, train(make))
    compare(wanted, train(make, between=between, budget=share, poison=True))


def _plain() -> Training:
    return mlp("adamw", depth=2)


def _accumulating() -> Training:
    """Its step leaves gradients and adds to those it finds."""
    run = mlp("adamw", depth=2)
    model, optimizer = run.model, run.optimizer

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    run.step = step
    return run


def _differ(a: Log, b: Log) -> None:
    """What is done between steps matters, or the comparison says nothing."""
    with pytest.raises(AssertionError):
        compare(a, b)


def test_rates_of_a_loaded_optimizer_without_state_count() -> None:
    """Plain SGD has no state that would show that load_state_dict has replaced its groups."""

    def load(index: int, run: Training) -> None:
        saved = run.optimizer.state_dict()
        saved["param_groups"][0]["lr"] = 0.1 / (index + 1)
        run.optimizer.load_state_dict(saved)
        if index == 3:
            run.optimizer.param_groups[0]["lr"] = 1.0

    make = lambda: mlp("sgd", depth=2)  # noqa: E731
    wanted = train(make, between=load)
    _differ(wanted, train(make))
    compare(wanted, train(make, between=load, budget="100%"))


def test_load_state_dict_by_assignment_asks_for_a_new_optimizer() -> None:
    """After assign=True eager's optimizer updates tensors that the model no longer has."""
    run = _plain()
    step = plan_of(run, budget="100%")
    step(*run.batches[0])
    saved = {name: value.detach().clone() * 0.5 for name, value in run.model.state_dict().items()}
    run.model.load_state_dict(copy.deepcopy(saved), assign=True)
    kept = [parameter.detach().clone() for parameter in run.model.parameters()]
    with pytest.raises(outsize.BadInputError, match="AdamW has 6 of 6 parameters .* make it from"):
        step(*run.batches[1])
    assert all(map(same, kept, (p.detach() for p in run.model.parameters())))
    # The way out that the message names:
    step.close()
    optimizer = torch.optim.AdamW(run.model.parameters(), lr=1e-2, weight_decay=0.1)
    again = outsize.step(run.model, optimizer, budget="4MiB", log=lambda line: None)
    planned = again(plain_step(run.model, optimizer))
    torch.manual_seed(1)
    loss = planned(*run.batches[1])

    plain = _plain()
    plain.model.load_state_dict(saved)
    torch.manual_seed(1)
    wanted = plain.step(*plain.batches[1])
    assert same(loss, wanted.detach())
    for a, b in zip(plain.model.parameters(), run.model.parameters(), strict=True):
        assert same(a, b)


def _in_a_process(script: str) -> str:
    """What a script prints that has `step`, `run` and `weight` of a step of 65 %; a crash fails."""
    head = (
        "import gc, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import torch\n"
        "from step_models import mlp\n"
        "from step_parity import plan_of\n"
        "run = mlp('adamw')\n"
        "weight = run.model[0].weight\n"
    )
    done = subprocess.run([sys.executable, "-c", head + script], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_an_array_from_before_the_first_step_keeps_its_values() -> None:
    """It is a copy from then on: the weight has moved into the arena."""
    run = _plain()
    step = plan_of(run, budget="65%")
    array = _weight(run).detach().numpy()
    shared = torch.utils.dlpack.from_dlpack(run.model[0].bias.detach())
    before, bias = array.copy(), shared.clone()
    for batch in run.batches:
        step(*batch)
        torch.empty(array.size).fill_(7)  # would be given the freed bytes
        assert (array == before).all() and same(shared, bias)
    array += 1
    assert not (_weight(run).detach().numpy() == array).any()
    step.close()


def test_an_array_taken_between_steps_is_the_weight() -> None:
    run = _plain()
    step = plan_of(run, budget="65%")
    step(*run.batches[0])
    step(*run.batches[1])  # the steady plan: homes stay from here on
    array = _weight(run).detach().numpy()
    for batch in run.batches:
        before = array.copy()
        step(*batch)
        assert (array == _weight(run).detach().numpy()).all() and (array != before).any()


@pytest.mark.parametrize("ending", ["step.close()", "del step; gc.collect()"])
def test_an_array_outlives_the_step(ending: str) -> None:
    said = _in_a_process(
        "step = plan_of(run, budget='65%')\n"
        "for batch in run.batches: step(*batch)\n"
        "array = weight.detach().numpy()\n"
        "average = run.optimizer.state[weight]['exp_avg']\n"
        "shared = torch.from_dlpack(average)\n"
        "wanted, moments = array.sum(), average.sum()\n"
        f"{ending}\n"
        "assert array.sum() == wanted == weight.detach().numpy().sum()\n"
        "assert torch.equal(shared.sum(), moments)\n"
        "array += 1\n"
        "run.step(*run.batches[0])\n"
        "print('fine')\n"
    )
    assert said == "fine\n"


def test_memory_that_nobody_holds_is_given_back() -> None:
    """Only what an array lies in is kept: the model is not there twice."""
    run = mlp("adamw", width=256)
    size = sum(parameter.nbytes for parameter in run.model.parameters())
    step = plan_of(run, budget="65%")
    step.prepare(*run.batches[0])
    gc.collect()
    before = outsize_core.counters()["default_live"]
    step(*run.batches[0])
    gc.collect()
    assert outsize_core.counters()["default_live"] <= before - size
    step.close()


def test_homes_that_do_not_fit_are_chosen_anew_and_arrays_live_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two steps of one model whose plans have other homes: tensors move at each change, and it is said."""
    real = Planner.prepare

    def no_room(self: Planner, *given: Any) -> Any:
        if given[-2] and given[0]["title"] == "evaluate":
            raise outsize.InfeasibleError("no room beside these homes")
        return real(self, *given)

    def evaluate(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return functional.mse_loss(run.model(x), target)

    monkeypatch.setattr(Planner, "prepare", no_room)
    plain, run = _plain(), _plain()
    said: list[str] = []
    size = sum(parameter.nbytes for parameter in run.model.parameters())
    budget = 8 * size
    step = plan_of(run, budget=budget)
    judge = outsize.step(run.model, budget=budget, log=said.append)(evaluate)
    kept: list[Any] = []
    for seed, batch in enumerate(run.batches):
        torch.manual_seed(seed)
        step(*batch)
        kept.append(_weight(run).detach().numpy())
        wanted = judge(*batch)
        torch.manual_seed(seed)
        plain.step(*batch)
        with torch.no_grad():
            assert same(wanted, functional.mse_loss(plain.model(batch[0]), batch[1]))
        assert same(_weight(run), _weight(plain))
    lines = [line for line in said if "has homes of its own" in line]
    assert len(lines) == 1 and lines[0].startswith("evaluate: no plan fits around the homes")
    # Where a home did move, its bytes are another's by now; reading them is safe all the same.
    assert all(array.shape == _weight(run).shape and array.sum() is not None for array in kept)


def test_a_scheduler_sees_that_its_optimizer_has_stepped() -> None:
    run = _plain()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, 0.9)
    step = plan_of(run, budget="65%")
    step.prepare(*run.batches[0])  # captures, and steps nothing
    with pytest.warns(UserWarning, match="lr_scheduler.step.* before .optimizer.step"):
        scheduler.step()
    other = _plain()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(other.optimizer, 0.9)
    step = plan_of(other, budget="65%")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(*other.batches[0])
        scheduler.step()


@pytest.mark.parametrize("planned", [False, True])
def test_autograd_sees_that_a_step_has_changed_what_it_saved(planned: bool) -> None:
    run = _plain()
    step: Any = plan_of(run, budget="65%") if planned else run.step
    for batch in run.batches[:3]:
        step(*batch)
    weight = _weight(run)
    outside = (weight * weight).sum()
    outside.backward()  # nothing has changed in between
    weight.grad = None
    outside = (weight * weight).sum()
    step(*run.batches[3])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outside.backward()


def test_kept_losses_never_change() -> None:
    run = _plain()
    step = plan_of(run, budget="70%", poison=True)
    losses, numbers = [], []
    for batch in run.batches * 2:
        losses.append(step(*batch))
        numbers.append(losses[-1].item())
    assert [loss.item() for loss in losses] == numbers
    assert len(set(numbers)) == len(numbers)
    assert len({loss.data_ptr() for loss in losses}) == len(losses)
    step.close()
    assert [loss.item() for loss in losses] == numbers


def test_state_dict_shows_the_live_parameters() -> None:
    plain, run = _plain(), _plain()
    step = plan_of(run, budget="70%")
    torch.manual_seed(1)
    for batch in run.batches[:2]:
        step(*batch)
    held = run.model.state_dict()
    saved = run.optimizer.state_dict()["state"]
    torch.manual_seed(1)
    for batch in plain.batches[:2]:
        plain.step(*batch)
    for name, value in plain.model.state_dict().items():
        assert same(held[name], value), name
    for index, state in plain.optimizer.state_dict()["state"].items():
        assert all(same(saved[index][key], value) for key, value in state.items())
    # It aliases the parameters, as eager's does: another step is seen through it, a write goes through.
    for train_step, batch in ((step, run.batches[2]), (plain.step, plain.batches[2])):
        torch.manual_seed(2)
        train_step(*batch)
    assert same(held["0.weight"], plain.model[0].weight)
    held["0.weight"].zero_()
    assert not run.model[0].weight.any()
    assert held["0.weight"].data_ptr() == run.model[0].weight.data_ptr()


def test_an_average_of_the_weights_between_steps() -> None:
    def run_with(budget: str | None) -> list[torch.Tensor]:
        torch.manual_seed(2)
        run = _plain()
        average = torch.optim.swa_utils.AveragedModel(
            run.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        step: Any = run.step if budget is None else plan_of(run, budget=budget, poison=True)
        for batch in run.batches:
            step(*batch)
            average.update_parameters(run.model)
        return [parameter.detach().clone() for parameter in average.parameters()]

    wanted = run_with(None)
    assert all(map(same, wanted, run_with("70%")))


def test_close_gives_ordinary_memory_back() -> None:
    plain, run = _plain(), _plain()
    step = plan_of(run, budget="60%")
    torch.manual_seed(3)
    for batch in run.batches[:3]:
        step(*batch)
    step.close()
    for batch in run.batches[3:]:
        run.step(*batch)
    torch.manual_seed(3)
    for batch in plain.batches:
        plain.step(*batch)
    for a, b in zip(plain.model.parameters(), run.model.parameters(), strict=True):
        assert same(a, b)
    with pytest.raises(outsize.OutsizeError, match="closed"):
        step(*run.batches[0])
    assert step.captures == 0
    # and another budget may be asked for now
    other = plan_of(run, budget="90%")
    other(*run.batches[0])
    assert other.last is not None and STEPS == len(run.batches)


def test_other_python_threads_run_during_a_step() -> None:
    run = mlp("sgd", width=512, batch=2048)
    step = plan_of(run, budget="100%")
    for batch in run.batches[:2]:
        step(*batch)
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            time.sleep(0.001)
            ticks[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    interval = sys.getswitchinterval()
    # No thread is made to let another run: the step must do so by itself.
    sys.setswitchinterval(1000)
    try:
        before = ticks[0]
        step(*run.batches[2])
        during, step_s = ticks[0] - before, step.last.step_s
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        ticker.join()
    assert step_s > 0.02
    assert during > step_s / 0.001 / 20
