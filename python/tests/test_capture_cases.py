"""Steps from public reports: captured to eager's bits, or refused by name with nothing changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import parity
import pytest
import torch
from case_oracle import batch, loss_of, mlp
from torch import nn
from torch.utils.checkpoint import checkpoint

from outsize.capture import capture
from outsize.errors import CaptureError

F = nn.functional


BATCHES = [(batch(k),) for k in range(6)]


def make_with(
    body: Callable[[nn.Module, torch.optim.Optimizer, Any], Any],
    model: Callable[[], nn.Module] = mlp,
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda p: torch.optim.SGD(p, 0.1),
) -> Callable[[], parity.Made]:
    def make() -> parity.Made:
        m = model()
        o = optimizer(m.parameters())

        def step(*args: Any) -> Any:
            return body(m, o, *args)

        return [m], [o], step

    return make


def plain(m: nn.Module, o: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    o.zero_grad()
    loss.backward()
    o.step()
    return loss.detach()


def refused(make: Callable[[], parity.Made], args: tuple[Any, ...], *words: str) -> str:
    """The step is refused, the message has the words, and nothing has changed."""
    torch.manual_seed(7)
    models, optimizers, step = make()
    before = parity.state_of(models, optimizers)
    with pytest.raises(CaptureError) as caught:
        capture(step, args, models=models, optimizers=optimizers)
    parity.assert_equal(before, parity.state_of(models, optimizers), "refusal changed")
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert "Way out" in text or "way out" in text, text
    return text


# -- random numbers ----------------------------------------------------------------------------


def test_numpy_random_is_refused() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return plain(m, o, loss_of(m, x * float(numpy.random.rand())))

    refused(make_with(body), BATCHES[0], "numpy.random")


def test_checkpoint_with_dropout_is_refused() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = checkpoint(m, x, use_reentrant=False)
        return plain(m, o, (h - x).square().mean())

    refused(make_with(body), BATCHES[0], "checkpoint")


# -- scalars -----------------------------------------------------------------------------------


def test_changing_attribute_becomes_a_symbol() -> None:
    class Holder:
        beta = 0.0

        def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            self.model, self.optimizer, self.beta = model, optimizer, 0.0

        def step(self, x: torch.Tensor) -> torch.Tensor:
            h = self.model(x)
            loss = (h - x).square().mean() + self.beta * h.abs().mean()
            return plain(self.model, self.optimizer, loss)

    def make() -> parity.Made:
        m = mlp()
        o = torch.optim.SGD(m.parameters(), 0.1)
        holder = Holder(m, o)
        return [m], [o], holder.step

    def between(index: int, made: parity.Made) -> None:
        made[2].__self__.beta = index / 20  # type: ignore[attr-defined]

    fixed = parity.run(make, BATCHES, between)
    assert len(fixed.captures) == len(BATCHES)
    assert "step.__self__.beta" in fixed.reasons[-1]
    driver = parity.run(make, BATCHES, between, symbols=frozenset({"step.__self__.beta"}))
    assert len(driver.captures) <= 2, driver.reasons


def test_changing_cell_becomes_a_symbol() -> None:
    def make() -> parity.Made:
        m = mlp()
        o = torch.optim.SGD(m.parameters(), 0.1)
        beta = 0.0

        def step(x: torch.Tensor) -> torch.Tensor:
            h = m(x)
            return plain(m, o, (h - x).square().mean() + beta * h.abs().mean())

        def set_beta(value: float) -> None:
            nonlocal beta
            beta = value

        step.set_beta = set_beta  # type: ignore[attr-defined]
        return [m], [o], step

    def between(index: int, made: parity.Made) -> None:
        made[2].set_beta(index / 20)  # type: ignore[attr-defined]

    driver = parity.run(make, BATCHES, between, symbols=frozenset({"beta"}))
    assert len(driver.captures) <= 2, driver.reasons


def test_gradients_kept_over_calls() -> None:
    def body(m: Any, o: Any, x: torch.Tensor, last: bool) -> Any:
        loss = loss_of(m, x)
        loss.backward()
        if last:
            o.step()
            o.zero_grad()
        return loss.detach()

    calls = [(batch(k), k % 3 == 2) for k in range(9)]
    driver = parity.run(make_with(body, optimizer=lambda p: torch.optim.AdamW(p, 0.01)), calls)
    # Without and with gradients, and with the step; each before and after there is state.
    assert len(driver.captures) == 6, driver.reasons


@pytest.mark.parametrize("inside", [False, True])
def test_scheduler(inside: bool) -> None:
    def make() -> parity.Made:
        m = mlp()
        o = torch.optim.AdamW(m.parameters(), 0.01)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(o, 4)

        def step(x: torch.Tensor) -> Any:
            loss = plain(m, o, loss_of(m, x))
            if inside:
                sched.step()
            return loss

        step.sched = sched  # type: ignore[attr-defined]
        return [m], [o], step

    def between(index: int, made: parity.Made) -> None:
        if not inside and index:
            made[2].sched.step()  # type: ignore[attr-defined]

    driver = parity.run(make, BATCHES, between)
    # First step; then .grad exist; zero_grad comes first, so the steady state has them.
    assert len(driver.captures) == 2, driver.reasons


def test_branch_on_the_batch_is_guarded() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        scale = 2.0 if (x.mean() > 0) else 0.5
        return plain(m, o, loss_of(m, x * scale))

    calls = [(batch(k),) for k in range(8)]
    driver = parity.run(make_with(body), calls)
    assert any("branch" in reason for reason in driver.reasons)
    assert len(driver.captures) <= 4


def test_branch_on_the_loss_is_refused() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = loss_of(m, x)
        if loss > 0.5:
            loss = loss * 2
        return plain(m, o, loss)

    refused(make_with(body), BATCHES[0], "test_capture_cases.py", "torch.where")


def test_item_in_outputs() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = plain(m, o, loss_of(m, x))
        return {"loss": loss.item(), "twice": 2 * loss.item(), "tensor": loss}

    driver = parity.run(make_with(body), BATCHES)
    assert len(driver.captures) == 2


@pytest.mark.parametrize(
    "use, words",
    [
        (lambda t: print(t.item()), ("prints",)),
        (lambda t: f"{t.item():.3f}", ("prints",)),
        (lambda t: f"{t}", ("prints",)),
        (lambda t: t.numpy(), ("numpy()",)),
        (lambda t: t.tolist(), ("tolist()",)),
        (lambda t: float(t), ("plain float",)),
        (lambda t: t.nonzero(), ("shape",)),
        (lambda t: t.unsqueeze(0)[t.unsqueeze(0) > 0], ("shape",)),
        (lambda t: torch.unique(t), ("shape",)),
        (lambda t: torch.arange(int(t)), ("plain float",)),
        (lambda t: torch.equal(t, t), ("reads tensor data",)),
    ],
)
def test_reading_tensor_data_is_refused(use: Callable[[Any], Any], words: tuple[str, ...]) -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = plain(m, o, loss_of(m, x))
        use(loss)
        return loss

    refused(make_with(body), BATCHES[0], "test_capture_cases.py", *words)


# -- what a capture may leave behind -------------------------------------------------------------


def test_counters_and_lists_are_refused_by_name() -> None:
    class Trainer:
        def __init__(self, kind: str) -> None:
            self.m = mlp()
            self.o = torch.optim.SGD(self.m.parameters(), 0.1)
            self.kind, self.n, self.hist = kind, 0, [1.0]

        def step(self, x: torch.Tensor) -> Any:
            loss = plain(self.m, self.o, loss_of(self.m, x))
            if self.kind == "n":
                self.n += len(x)
            elif self.kind == "hist":
                self.hist.append(loss.item())
            else:
                self.kept = loss
            return loss

    for kind, word in (("n", ".n"), ("hist", ".hist"), ("kept", ".kept")):
        trainer = Trainer(kind)
        refused(lambda t=trainer: ([t.m], [t.o], t.step), BATCHES[0], word)
        assert trainer.n == 0 and trainer.hist == [1.0] and not hasattr(trainer, "kept")


def test_survivor_in_a_global_list_is_refused() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = loss_of(m, x)
        KEPT.append(loss)
        return plain(m, o, loss)

    refused(make_with(body), BATCHES[0], "KEPT")
    assert KEPT == []


KEPT: list[torch.Tensor] = []


def test_survivor_behind_a_function_is_named() -> None:
    class Box:
        pass

    box = Box()
    hide = {"hidden": lambda t: setattr(box, "held", t)}

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = loss_of(m, x)
        hide["hidden"](loss)
        return plain(m, o, loss)

    refused(make_with(body), BATCHES[0], "held")
    assert not hasattr(box, "held")


def test_capture_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    versions = [p._version for p in model.parameters()]

    def step(x: torch.Tensor) -> torch.Tensor:
        return plain(model, optimizer, loss_of(model, x))

    before = parity.state_of([model], [optimizer])
    for _ in range(3):
        capture(step, BATCHES[0], models=[model], optimizers=[optimizer])
    parity.assert_equal(before, parity.state_of([model], [optimizer]), "capture changed")
    assert not optimizer.state and model[1].num_batches_tracked == 0
    assert versions == [p._version for p in model.parameters()]
    assert all(p.grad is None for p in model.parameters())


def test_user_error_passes_through() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = loss_of(m, x)
        loss.backward()
        raise ValueError("the user's own")

    models, optimizers, step = make_with(body)()
    before = parity.state_of(models, optimizers)
    with pytest.raises(ValueError, match="the user's own"):
        capture(step, BATCHES[0], models=models, optimizers=optimizers)
    parity.assert_equal(before, parity.state_of(models, optimizers), "error changed")


def test_data_made_outside_pytorch_is_refused() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        w = torch.from_numpy(numpy.ones((8, 16), dtype="float32"))
        return plain(m, o, loss_of(m, x * w))

    refused(make_with(body), BATCHES[0], "from_numpy")
    with pytest.raises(CaptureError, match="NumPy array"):
        capture(lambda a: a, (numpy.ones(3),))


def test_a_capture_does_not_keep_the_batch() -> None:
    models, optimizers, step = make_with(lambda m, o, x: plain(m, o, loss_of(m, x)))()
    x = batch(0)
    kept = weakref.ref(x)
    captured = capture(step, (x,), models=models, optimizers=optimizers)
    del x
    gc.collect()
    assert kept() is None and not captured.stale((batch(1),), {})


def test_loaded_learning_rate_is_used() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return plain(m, o, loss_of(m, x))

    def between(index: int, made: parity.Made) -> None:
        if index == 3:
            (o,) = made[1]
            saved = o.state_dict()
            saved["param_groups"][0]["lr"] = 0.5
            o.load_state_dict(saved)

    driver = parity.run(make_with(body), BATCHES, between)
    assert len(driver.captures) == 2, driver.reasons
