"""What `outsize.step` refuses, what it says, and what it leaves as it was."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import assert_equal, same, state_of
from step_models import OPTIMIZERS, Training, mlp
from step_parity import plan_of, unchanged
from torch import nn
from torch.nn import functional

import outsize
from outsize import planning

HERE = Path(__file__).name


def refused(match: str, *objects: Any, **options: Any) -> None:
    with pytest.raises(outsize.BadInputError, match=match):
        outsize.step(*objects, **options)


def test_options_that_cannot_be_taken() -> None:
    run = mlp("sgd", depth=1)
    refused("needs a budget", run.model, run.optimizer)
    refused("no option 'budgett'; did you mean 'budget'", run.model, budgett="1GiB")
    refused("no option 'xyz'; known are budget", run.model, budget="1GiB", xyz=1)
    refused("can't read '6 gigs'", run.model, budget="6 gigs")
    refused("can't read 'some%'", run.model, budget="some%")
    refused("positive whole number", run.model, budget=-5)
    refused("had True", run.model, budget=True)
    refused("can't read 'lots'", run.model, budget="1GiB", host="lots")
    refused("a share of a peak that is not known", run.model, budget="1GiB", host="50%")
    refused("no planner 'outsise'; did you mean 'outsize'", run.model, budget=1, planner="outsise")
    refused("there is no folder .*10GiB", run.model, budget="1GiB", disk="10GiB")
    refused("modules and optimizers, had int", run.model, 5, budget="1GiB")
    refused("needs the model", run.optimizer, budget="1GiB")


def test_objects_that_cannot_be_taken() -> None:
    run = mlp("sgd", depth=1)
    with torch.device("meta"):
        elsewhere = nn.Linear(2, 2)
    refused("lies on meta; .* model.cpu\\(\\)", elsewhere, budget="1GiB")
    stranger = OPTIMIZERS["sgd"](nn.Linear(2, 2).parameters())
    refused("SGD has 2 of 2 parameters that are not the model's", run.model, stranger, budget=1)
    closure_driven = torch.optim.LBFGS(run.model.parameters())
    refused("LBFGS runs the step's closure", run.model, closure_driven, budget="1GiB")
    step = plan_of(run, budget="1MiB")
    with unchanged(run), pytest.raises(outsize.BadInputError, match="argument 0 lies on meta"):
        step(torch.empty(2, 48, device="meta"), run.batches[0][1])


def test_budget_below_the_floor() -> None:
    run = mlp("adamw", depth=1)
    step = plan_of(run, budget=20_000)
    with unchanged(run), pytest.raises(outsize.InfeasibleError) as caught:
        step(*run.batches[0])
    error, text = caught.value, str(caught.value)
    assert error.floor_bytes is not None and 20_000 < error.floor_bytes <= 3 * 48 * 48 * 4
    assert error.least_bytes is not None and error.least_bytes >= error.floor_bytes
    floor = rf"floor of any plan, {error.floor_bytes / 1024:.2f} KiB, set by op \d+ aten\.\w+"
    assert re.search(floor + r".* \(.*step_models\.py:\d+\)", text), text
    assert f"Ways out: budget={error.least_bytes} or more, a smaller batch" in text
    # The first way out is one.
    again = plan_of(run, budget=error.least_bytes)
    again(*run.batches[0])
    assert again.last is not None and again.last.peak_bytes <= error.least_bytes


def test_floor_names_module_and_line() -> None:
    class Total(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    model = nn.Sequential(nn.Linear(8, 8), Total())

    def step(x: torch.Tensor) -> torch.Tensor:
        return model(x)  # the floor

    where = rf"set by op 0 aten\.addmm\.default \(0, .*{_marked('the floor')}\)"
    with pytest.raises(outsize.InfeasibleError, match=where):
        outsize.step(model, budget=2000, log=lambda line: None)(step)(torch.ones(640, 8))


def test_another_budget_for_the_same_model() -> None:
    run = mlp("sgd")
    first = plan_of(run, budget="1MiB")
    first(*run.batches[0])
    other = plan_of(run, budget="2MiB")
    with pytest.raises(outsize.BadInputError, match="1.05 MB; train_step asks for 2.1 MB.*close"):
        other(*run.batches[0])


# -- files in the cache -------------------------------------------------------------------------
@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTSIZE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def filled_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with the files of one short training in it."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTSIZE_CACHE", str(folder))
        _loss([])
    yield folder


def _loss(said: list[str]) -> torch.Tensor:
    run = mlp("momentum", depth=1)
    step = plan_of(run, said, budget="80%")
    torch.manual_seed(1)
    loss: torch.Tensor = step(*run.batches[0])
    step.close()
    return loss


def _truncate(text: str) -> str:
    return text[: len(text) // 2]


def _other_version(text: str) -> str:
    return re.sub(r'"version": ?\d+', '"version":999', text, count=1)


def _flip_a_digit(text: str) -> str:
    middle = next(i for i in range(len(text) // 2, len(text)) if text[i] in "12345678")
    return text[:middle] + str(int(text[middle]) + 1) + text[middle + 1 :]


def _somebody_elses(text: str) -> str:
    return '{"hello": "world"}'


def _binary(text: str) -> str:
    return "\x00\x01" * 50


@pytest.mark.parametrize("kind", ["machine", "ops", "plan", "surroundings"])
@pytest.mark.parametrize(
    "damage", [_truncate, _other_version, _flip_a_digit, _somebody_elses, _binary]
)
def test_damaged_files_are_ignored_with_a_line(
    cache: Path, filled_cache: Path, kind: str, damage: Callable[[str], str]
) -> None:
    shutil.copytree(filled_cache, cache)
    quiet: list[str] = []
    wanted = _loss(quiet)
    assert not [line for line in quiet if str(cache) in line], quiet
    assert {path.name for path in cache.iterdir()} == {"machine", "ops", "plan", "surroundings"}
    files = sorted((cache / kind).iterdir())
    assert files
    for path in files:
        before = path.read_text()
        path.write_text(damage(before))
        assert path.read_text() != before
    said: list[str] = []
    assert same(_loss(said), wanted)
    lines = [line for line in said if f"/{kind}/" in line]
    assert lines and all("ignored" in line or "measured again" in line for line in lines), said
    assert all("damaged" in line for line in lines)


def test_a_cache_that_cannot_be_written_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("OUTSIZE_CACHE", str(blocked))
    said: list[str] = []
    _loss(said)
    assert [line for line in said if "can't write" in line], said


def test_another_pytorch_plans_again_and_says_so(
    cache: Path, filled_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(filled_cache, cache)
    said: list[str] = []
    wanted = _loss(said)
    assert not [line for line in said if "planned before" in line], said
    plans = set((cache / "plan").iterdir())

    monkeypatch.setattr(torch, "__version__", "2.12.1")
    for lines in (1, 0):  # it is said where nothing kept can be used, and only then
        said = []
        assert same(_loss(said), wanted)
        told = [line for line in said if "planned before" in line]
        assert len(told) == lines
    assert set((cache / "plan").iterdir()) > plans


# -- between calls ------------------------------------------------------------------------------
def test_another_thread_count_is_planned_again() -> None:
    def threads(index: int) -> None:
        torch.set_num_threads(2 if index in (2, 3) else 1)

    def run_with(budget: str | None) -> tuple[list[Any], list[dict[str, Any]], list[str]]:
        torch.manual_seed(1)
        run = mlp("momentum", depth=1)
        said: list[str] = []
        step: Any = run.step if budget is None else plan_of(run, said, budget=budget)
        losses, states = [], []
        try:
            for index, batch in enumerate(run.batches):
                threads(index)
                losses.append(step(*batch).detach().clone())
                states.append(state_of([run.model], [run.optimizer]))
        finally:
            torch.set_num_threads(1)
        return losses, states, said

    wanted, wanted_states, _ = run_with(None)
    had, had_states, said = run_with("80%")
    assert all(map(same, wanted, had))
    for index, (a, b) in enumerate(zip(wanted_states, had_states, strict=True)):
        assert_equal(a, b, f"step {index}")
    assert [line for line in said if "planning again: PyTorch's thread count was 1, is 2" in line]


# -- steps that cannot be captured --------------------------------------------------------------
def _marked(text: str) -> str:
    """The line of this file that ends with the comment `text`."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return rf"{re.escape(HERE)}:{number}"


def _refuse(change: Callable[[Training], Callable[..., Any]], match: str) -> None:
    run = mlp("momentum", depth=1)
    plan_of(run, budget="1MiB")(*run.batches[0])
    run.step = change(run)
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with unchanged(run), pytest.raises(outsize.CaptureError, match=match):
        plan_of(run, budget="1MiB")(*run.batches[1])


def test_data_dependent_shapes() -> None:
    def change(run: Training) -> Callable[..., Any]:
        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            hidden = run.model(x)
            loss = hidden[hidden.nonzero()[:, 0]].mean()  # nonzero here
            loss.backward()
            run.optimizer.step()
            return loss

        return step

    _refuse(
        change, _marked("nonzero here") + ".*depends on tensor data.*Way out: give .* fixed shape"
    )


def test_control_flow_on_tensor_data() -> None:
    def change(run: Training) -> Callable[..., Any]:
        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = functional.mse_loss(run.model(x), target)
            if loss > 0:  # branch here
                loss.backward()
            run.optimizer.step()
            return loss

        return step

    _refuse(change, _marked("branch here") + ".*branch from tensor data.*Way out: use torch.where")


def test_an_op_that_writes_what_its_schema_does_not_mark() -> None:
    library = torch.library.Library("outsize_test_lies", "DEF")
    library.define("halve(Tensor x) -> Tensor")
    library.impl("halve", lambda x: x.mul_(0.5).clone(), "CPU")
    library.impl("halve", torch.empty_like, "Meta")

    def change(run: Training) -> Callable[..., Any]:
        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                torch.ops.outsize_test_lies.halve(run.model[0].weight)
            return functional.mse_loss(run.model(x), target)

        return step

    _refuse(change, "does otherwise than its schema says: .*outsize_test_lies.*halve.*Way out: ")


def test_python_randomness() -> None:
    def change(run: Training) -> Callable[..., Any]:
        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = functional.mse_loss(run.model(x), target) * random.random()
            loss.backward()
            run.optimizer.step()
            return loss

        return step

    state = random.getstate()
    _refuse(change, "draws from random's global generator")
    assert random.getstate() == state


def test_a_list_that_grows() -> None:
    seen: list[float] = []

    def change(run: Training) -> Callable[..., Any]:
        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = functional.mse_loss(run.model(x), target)
            seen.append(loss.item())
            loss.backward()
            run.optimizer.step()
            return loss

        return step

    _refuse(change, "seen")
    assert seen == []


# -- steps that fail ----------------------------------------------------------------------------
@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """plant("aten.mul_"): the last such op is expected to ask for a temporary of one byte more."""
    measured = planning.Planner.profile

    def plant_in(name: str) -> None:
        def profile(self: Any, graph: Any, inputs: Any) -> tuple[str, str]:
            graph_text, profile_text = measured(self, graph, inputs)
            whole = json.loads(profile_text)
            for op, cost in reversed(list(zip(graph["ops"], whole["ops"], strict=True))):
                requests = cost.get("requests", [[0, 0, 0]])
                if op["name"].startswith(name) and requests[-1][1] == -1:  # a temporary
                    requests[-1][0] += 1
                    break
            else:
                raise AssertionError(f"no {name} with a temporary")
            return graph_text, json.dumps(whole)

        monkeypatch.setattr(planning.Planner, "profile", profile)

    yield plant_in


def _large() -> Training:
    """Parameters that are too large to be kept for undoing; an update that asks for temporaries."""
    return mlp("adamw", depth=1, width=160, batch=8)


def test_a_step_that_fails_early_is_undone(
    plant: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _large()
    torch.manual_seed(1)
    plan_of(run, budget="4MiB")(*run.batches[0])
    plant("aten.div_.Scalar")  # of the dropout
    step = plan_of(run, budget="4MiB")
    with unchanged(run), pytest.raises(outsize.StepError) as caught:
        step(*run.batches[1])
    error, text = caught.value, str(caught.value)
    assert "aten.div_.Scalar" in text and "the step was undone" in text
    assert re.search(r"\b4 bytes", text) and re.search(r"\b5\b", text), text
    assert error.undone and error.mixed == []
    # What failed was the plan, not the state: another step of the model goes on as eager would.
    monkeypatch.undo()
    again = plan_of(run, budget="4MiB")
    again(*run.batches[1])
    plain = _large()
    torch.manual_seed(1)
    for batch in plain.batches[:2]:
        plain.step(*batch)
    wanted = state_of([plain.model], [plain.optimizer])
    assert_equal(wanted, state_of([run.model], [run.optimizer]), "after the failure")


def test_a_step_that_fails_late_is_poisoned_until_restored(
    plant: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, plain = _large(), _large()
    for each in (run, plain):
        torch.manual_seed(1)
        step = plan_of(run, budget="4MiB") if each is run else plain.step
        step(*each.batches[0])
    model = {name: value.clone() for name, value in run.model.state_dict().items()}
    optimizer = copied_state(run.optimizer.state_dict())

    plant("aten.add_.Tensor")  # of the last parameter's epsilon: others have been updated
    failing = plan_of(run, budget="4MiB")
    generator = torch.get_rng_state()
    with pytest.raises(outsize.StepError) as caught:
        failing(*run.batches[1])
    error = caught.value
    assert not error.undone and "param:0.weight" in error.mixed, error
    assert "of two steps mixed: " in str(error) and "aten.add_.Tensor" in str(error)
    assert same(torch.get_rng_state(), generator)

    monkeypatch.undo()
    other = plan_of(run, budget="4MiB")
    for step in (failing, other):
        with pytest.raises(outsize.PoisonedError, match="mix of two steps in .*param:0.weight"):
            step(*run.batches[1])
    run.model.load_state_dict(model)
    with pytest.raises(outsize.PoisonedError) as caught_again:
        other(*run.batches[1])
    left = caught_again.value.mixed
    assert left and all(name.startswith("state:") for name in left), left
    run.optimizer.load_state_dict(optimizer)
    for each, step in ((run, other), (plain, plain.step)):
        torch.set_rng_state(generator)
        for batch in each.batches[1:3]:
            step(*batch)
    wanted = state_of([plain.model], [plain.optimizer])
    assert_equal(wanted, state_of([run.model], [run.optimizer]), "after restoring")


def test_restored_says_that_all_is_well(
    plant: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _large()
    plan_of(run, budget="4MiB")(*run.batches[0])
    plant("aten.add_.Tensor")
    failing = plan_of(run, budget="4MiB")
    with pytest.raises(outsize.StepError):
        failing(*run.batches[1])
    monkeypatch.undo()
    other = plan_of(run, budget="4MiB")
    for parameter in run.model.parameters():  # by means that PyTorch doesn't count
        parameter.data.numpy()[...] = 0.01
    for state in run.optimizer.state.values():
        for tensor in state.values():
            tensor.numpy()[...] = 1
    with pytest.raises(outsize.PoisonedError):
        other(*run.batches[1])
    failing.restored()
    other(*run.batches[1])


def copied_state(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of an optimizer's state_dict, tensors and all."""
    copied = {
        index: {key: value.clone() for key, value in entries.items()}
        for index, entries in state["state"].items()
    }
    return {"state": copied, "param_groups": [dict(group) for group in state["param_groups"]]}


def test_gradients_dropped_before_the_failure_are_named_as_gone(
    plant: Callable[[str], None],
) -> None:
    run = _large()
    optimizer, inner = run.optimizer, run.step

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = inner(x, target)
        return loss

    run.step = step
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    plant("aten.div_.Scalar")
    with pytest.raises(outsize.StepError, match="drops at its start are gone") as caught:
        plan_of(run, budget="4MiB")(*run.batches[0])
    assert caught.value.undone
    assert all(parameter.grad is None for parameter in run.model.parameters())
