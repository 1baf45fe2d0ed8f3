"""Steps built in many ways, guards and signatures: bit for bit as eager does them, or refused by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from parity import assert_equal, same, state_of
from step_models import Training, minimizing, mlp
from step_parity import equal_at_share
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from zoo_own import generator_and_critic

import outsize

SEARCH_S = 0.1
Step = Callable[[torch.Tensor], Any]


def _batches(count: int = 4, rows: int = 8) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(6)
    return [(torch.randn(rows, 16, generator=generator),) for _ in range(count)]


def _net() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 16))


def _training(model: nn.Module, loss_of: Step, count: int = 4) -> Training:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    return Training(model, optimizer, minimizing(optimizer, loss_of), _batches(count))


# -- structures, each a training run ---------------------------------------------------------------
def teacher_and_student() -> Training:
    teacher, student = _net(), _net()
    teacher.requires_grad_(False)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = teacher(x)
        return functional.mse_loss(student(x + 0.1), wanted)

    run = _training(student, loss_of)
    run.others = [teacher]
    return run


class LowRank(nn.Module):
    """A frozen matrix with a trained update of rank two."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.base = nn.Linear(size, size, bias=False).requires_grad_(False)
        self.down = nn.Linear(size, 2, bias=False)
        self.up = nn.Linear(2, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def low_rank_on_a_frozen_base() -> Training:
    torch.manual_seed(5)
    model = nn.Sequential(LowRank(16), nn.Tanh(), LowRank(16))
    return _training(model, lambda x: functional.mse_loss(model(x), x))


def gradient_hooks() -> Training:
    def clip(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.clamp_(-0.01, 0.01)

    model = _net()
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    model[3].bias.register_post_accumulate_grad_hook(clip)
    return _training(model, lambda x: functional.mse_loss(model(x), x))


def forward_hooks() -> Training:
    model = _net()
    model[0].register_forward_hook(lambda module, inputs, output: output * 1.5)
    model[3].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 0.1,))
    model[3].register_full_backward_hook(lambda module, into, out: (into[0] * 0.5,))
    return _training(model, lambda x: functional.mse_loss(model(x), x))


def weight_norm() -> Training:
    torch.manual_seed(5)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), nn.Tanh())
    return _training(model, lambda x: functional.mse_loss(model(x), x))


def spectral_norm_used_twice() -> Training:
    """The power iteration's vectors change in place at each forward: twice in a step."""
    torch.manual_seed(5)
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 1))
    return _training(model, lambda x: model(x).mean() - model(0.5 * x + 1).mean())


class Cubed(torch.autograd.Function):
    """Keeps a tensor on ctx beside the saved ones, and reads those twice."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kept = x * x
        return ctx.kept * x * weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        again, _ = ctx.saved_tensors
        return gradient * 3 * ctx.kept * weight, (gradient * ctx.kept * again).sum(0)


def custom_function() -> Training:
    model = nn.ParameterDict({"weight": nn.Parameter(torch.linspace(0.1, 1, 16))})
    inner = _net()
    run = _training(inner, lambda x: Cubed.apply(inner(x), model["weight"]).square().mean())
    run.optimizer.add_param_group({"params": [model["weight"]]})
    run.others = [model]
    return run


def gradient_penalty() -> Training:
    """Double backward: the gradient's norm is part of the loss."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        score = model(x).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return score.square() + (slope.norm(dim=1) - 1).square().mean()

    return _training(model, loss_of)


def checkpointed_without_dropout() -> Training:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        output = checkpoint(model, x, use_reentrant=False, preserve_rng_state=False)
        return functional.mse_loss(output, x)

    return _training(model, loss_of)


def weights_moved_and_put_back() -> Training:
    """Two passes: up the slope, gradients there, back, and then the step."""
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        functional.mse_loss(model(x), x).backward()
        with torch.no_grad():
            moves = [p.grad * 0.05 for p in model.parameters() if p.grad is not None]
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), x)
        loss.backward()
        with torch.no_grad():
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.sub_(move)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Training(model, optimizer, step, _batches())


STRUCTURES: list[Callable[[], Training]] = [
    teacher_and_student,
    low_rank_on_a_frozen_base,
    gradient_hooks,
    forward_hooks,
    weight_norm,
    spectral_norm_used_twice,
    custom_function,
    gradient_penalty,
    checkpointed_without_dropout,
    weights_moved_and_put_back,
]


@pytest.mark.parametrize("make", STRUCTURES, ids=lambda make: make.__name__)
def test_structures(make: Callable[[], Training]) -> None:
    equal_at_share(make, "75%", SEARCH_S)


def test_what_is_frozen_is_never_written() -> None:
    run = low_rank_on_a_frozen_base()
    planned = outsize.step(
        run.model, run.optimizer, budget="75%", seconds=SEARCH_S, log=lambda line: None
    )(run.step)
    planned(*run.batches[0])  # in which they are brought to their homes
    versions = [module.base.weight._version for module in (run.model[0], run.model[2])]
    planned(*run.batches[1])
    graph = planned._variants[-1].capture.graph
    written = {access[0] for op in graph["ops"] for access in op.get("mutates", [])}
    names = {storage.get("name", "") for storage in (graph["storages"][i] for i in written)}
    assert not any("base.weight" in name for name in names), names
    assert versions == [module.base.weight._version for module in (run.model[0], run.model[2])]
    planned.close()


# -- batches of every form --------------------------------------------------------------------------
@dataclass
class Pair:
    x: torch.Tensor
    target: torch.Tensor


@pytest.mark.parametrize("form", ["dict", "tuple", "nested", "keywords", "dataclass"])
def test_batches_of_every_form(form: str) -> None:
    def train_with(planned: bool) -> list[Any]:
        run = mlp("adamw", depth=1, width=16, batch=8)
        inner = run.step

        def step(batch: Any = None, **more: torch.Tensor) -> Any:
            if form == "dict":
                return {"loss": inner(batch["x"], batch["target"])}
            if form == "tuple":
                return inner(*batch), batch[0]
            if form == "nested":
                return inner(batch["a"][0], batch["b"]["target"])
            if form == "dataclass":
                return inner(batch.x, batch.target)
            return inner(more["x"], more["target"])

        call: Any = step
        if planned:
            options: dict[str, Any] = dict(budget="75%", seconds=SEARCH_S, log=lambda line: None)
            call = outsize.step(run.model, run.optimizer, **options)(step)
        kept: list[Any] = []
        torch.manual_seed(1)
        for x, target in run.batches[:3]:
            if form == "keywords":
                result = call(x=x, target=target)
            else:
                result = call(
                    {
                        "dict": {"x": x, "target": target},
                        "tuple": (x, target),
                        "nested": {"a": [x], "b": {"target": target}},
                        "dataclass": Pair(x, target),
                    }[form]
                )
            if form == "tuple":
                assert result[1] is x
                result = result[0]
            kept.append((result, state_of([run.model], [run.optimizer])))
        if planned:
            call.close()
        return kept

    wanted = train_with(False)
    if form == "dataclass":
        # Its tensors are the caller's own objects of the first call: another batch is another object.
        try:
            had = train_with(True)
        except outsize.OutsizeError as error:
            assert "batch" in str(error) or "argument" in str(error), error
            return
    else:
        had = train_with(True)
    for (result, state), (planned_result, planned_state) in zip(wanted, had, strict=True):
        a = result["loss"] if isinstance(result, dict) else result
        b = planned_result["loss"] if isinstance(planned_result, dict) else planned_result
        assert same(a, b)
        assert_equal(state, planned_state, form)


# -- accumulation, GANs in two steps ---------------------------------------------------------------
def test_the_optimizer_steps_at_every_third_call() -> None:
    """A Python flag that the caller passes: two captures, and gradients that stay between calls."""

    def train_with(planned: bool) -> list[Any]:
        model = _net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x: torch.Tensor, last: bool) -> torch.Tensor:
            loss = functional.mse_loss(model(x), x) / 3
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        call: Any = step
        if planned:
            options: dict[str, Any] = dict(budget="90%", seconds=SEARCH_S, log=lambda line: None)
            call = outsize.step(model, optimizer, **options)(step)
        torch.manual_seed(1)
        kept = []
        for index, (x,) in enumerate(_batches(9)):
            kept.append((call(x, index % 3 == 2), state_of([model], [optimizer])))
        if planned:
            call.close()
        return kept

    for (a, before), (b, now) in zip(train_with(False), train_with(True), strict=True):
        assert same(a, b)
        assert_equal(before, now, "accumulation")


@pytest.mark.parametrize("sharing", [False, True], ids=["sharing-nothing", "sharing-a-generator"])
def test_a_gan_in_two_steps(sharing: bool) -> None:
    """The critic's step is given what the generator made, or makes it itself."""

    def train_with(planned: bool) -> list[Any]:
        maker, critic = generator_and_critic()
        of_maker = torch.optim.AdamW(maker.parameters())
        of_critic = torch.optim.AdamW(critic.parameters())
        inputs = torch.Generator().manual_seed(4)

        def critic_step(real: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                made = maker(given) if sharing else given
            of_critic.zero_grad()
            loss = functional.softplus(critic(made)).mean() - critic(real).mean()
            loss.backward()
            of_critic.step()
            return loss

        def maker_step(noise: torch.Tensor) -> torch.Tensor:
            of_maker.zero_grad()
            made = maker(noise)
            score = critic(made) if sharing else made.square()
            loss = functional.softplus(-score).mean()
            loss.backward()
            of_maker.step()
            of_critic.zero_grad()
            return loss

        first: Any = critic_step
        second: Any = maker_step
        if planned:
            options: dict[str, Any] = dict(budget="1MiB", seconds=SEARCH_S, log=lambda line: None)
            both = [maker, critic, of_maker, of_critic]
            first = outsize.step(*(both if sharing else [critic, of_critic]), **options)(
                critic_step
            )
            second = outsize.step(
                *(both if sharing else [maker, of_maker, of_critic, critic]), **options
            )(maker_step)
        torch.manual_seed(1)
        kept = []
        for _ in range(4):
            real, noise = torch.randn(16, 16, generator=inputs), torch.randn(
                16, 8, generator=inputs
            )
            given = noise if sharing else noise.repeat(1, 2)
            kept.append((first(real, given), second(noise)))
            kept.append(state_of([maker, critic], [of_maker, of_critic]))
        if planned:
            first.close()
            second.close()
        return kept

    for before, now in zip(train_with(False), train_with(True), strict=True):
        if isinstance(before, tuple):
            assert all(map(same, before, now))
        else:
            assert_equal(before, now, "gan")


# -- guards -----------------------------------------------------------------------------------------
def test_radam_rectifies_from_its_sixth_step_on() -> None:
    """A branch on a number that counts steps: it flips once, and is planned again with a line."""

    def make() -> Training:
        model = _net()
        optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
        step = minimizing(optimizer, lambda x: functional.mse_loss(model(x), x))
        return Training(model, optimizer, step, _batches(9))

    log = equal_at_share(make, "75%", SEARCH_S)
    assert any("the branch at" in line for line in log.said), log.said


def test_a_python_flag_that_changes() -> None:
    flags = {"deep": True}

    def make() -> Training:
        flags["deep"] = True
        model = _net()

        def loss_of(x: torch.Tensor) -> torch.Tensor:
            output = model(x) if flags["deep"] else model[0](x)[:, :16]
            return functional.mse_loss(output, x)

        run = _training(model, loss_of, count=5)
        seen = [0]

        def after() -> None:
            seen[0] += 1
            flags["deep"] = seen[0] not in (2, 3)

        run.after = after
        return run

    log = equal_at_share(make, "90%", SEARCH_S)
    assert any("flags" in line and "was True" in line for line in log.said), log.said


def test_a_setting_made_by_the_step_is_made_once() -> None:
    """A number that the first step sets and the next finds set: no counter. A counter is refused."""

    class Model(nn.Module):
        def __init__(self, counts: bool) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)
            self.window, self.seen, self.counts = 7, 0, counts

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = self.window
            self.window = min(self.window, 4)
            if self.counts:
                self.seen += 1
            return self.linear(x) * scale

    def make(counts: bool = False) -> Training:
        torch.manual_seed(5)
        model = Model(counts)
        return _training(model, lambda x: functional.mse_loss(model(x), x))

    equal_at_share(make, "90%", SEARCH_S)
    run = make(counts=True)
    planned = outsize.step(run.model, run.optimizer, budget="1MiB", log=lambda line: None)(run.step)
    with pytest.raises(outsize.CaptureError, match="model.seen: was assigned"):
        planned(*run.batches[0])
    assert (run.model.seen, run.model.window) == (0, 7)
    planned.close()


def _counts_in_a_closure(kept: dict[str, Any]) -> Step:
    def use(loss: torch.Tensor) -> None:
        kept["n"] = kept.get("n", 0) + 1

    return use


def _draws(kept: dict[str, Any]) -> Step:
    return lambda loss: kept.get("missing", random.random())


def _appends(kept: dict[str, Any]) -> Step:
    history: list[float] = kept.setdefault("history", [])
    return lambda loss: history.append(loss.item())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_counts_in_a_closure, r"kept\['n'\]|changes Python state"),
        (_draws, "draws from random's global generator"),
        (_appends, "history.* has 1 items, had 0"),
    ],
)
def test_python_state_is_refused_by_name(make: Callable[..., Step], words: str) -> None:
    kept: dict[str, Any] = {"n": 1}
    model, use = _net(), make(kept)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), x)
        use(loss)
        return loss

    run = _training(model, loss_of)
    planned = outsize.step(model, run.optimizer, budget="1MiB", log=lambda line: None)(run.step)
    before, drawn = state_of([model], [run.optimizer]), random.getstate()
    with pytest.raises(outsize.CaptureError, match=words):
        planned(*run.batches[0])
    assert_equal(before, state_of([model], [run.optimizer]), "refused")
    assert kept["n"] == 1 and not kept.get("history") and random.getstate() == drawn
    planned.close()


# -- signatures -------------------------------------------------------------------------------------
def test_three_signatures_in_turn_for_thirty_steps() -> None:
    """Two sequence lengths and a short batch in turn, an evaluation now and then through its own step."""

    def train_with(planned: bool) -> tuple[list[Any], list[str]]:
        model = _net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        said: list[str] = []
        step = minimizing(optimizer, lambda x: functional.mse_loss(model(x), x))

        @torch.no_grad()
        def evaluate(x: torch.Tensor) -> torch.Tensor:
            return functional.mse_loss(model(x), x)

        first: Any = step
        second: Any = evaluate
        if planned:
            options: dict[str, Any] = dict(budget="32KiB", seconds=SEARCH_S, log=said.append)
            first = outsize.step(model, optimizer, **options)(step)
            second = outsize.step(model, **options)(evaluate)
        inputs = torch.Generator().manual_seed(4)
        torch.manual_seed(1)
        kept = []
        for index in range(30):
            shape = ((8, 16), (4, 12, 16), (3, 16))[index % 3]
            x = torch.randn(shape, generator=inputs)
            result = [first(x)]
            if index % 7 == 6:
                model.eval()
                result.append(second(x))
                model.train()
            kept.append((result, state_of([model], [optimizer])))
        if planned:
            assert first.captures == 4  # the very first step, without state, and the three
            first.close()
            second.close()
        return kept, said

    wanted, _ = train_with(False)
    had, said = train_with(True)
    for (a, before), (b, now) in zip(wanted, had, strict=True):
        assert all(map(same, a, b))
        assert_equal(before, now, "signatures")
    assert sum("planning again" in line for line in said) <= 6, said
