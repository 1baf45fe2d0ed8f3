"""`outsize.verify` finds equal what is equal, names what is not, and leaves the state as it was."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
from parity import assert_equal, results, state_of
from step_models import Training, mlp, resnet

import outsize


def _decorated(run: Training, **options: Any) -> outsize.Step:
    return outsize.step(run.model, run.optimizer, *run.others, log=lambda line: None, **options)(
        run.step
    )


@pytest.mark.parametrize("steps_before", [0, 2])
def test_an_honest_step_is_equal_and_the_state_stays(steps_before: int) -> None:
    torch.manual_seed(3)
    run = resnet("momentum")
    step = _decorated(run, budget="70%")
    for batch in run.batches[:steps_before]:
        step(*batch)
    before = state_of([run.model], [run.optimizer])
    report = outsize.verify(step, *run.batches[steps_before])
    assert report.equal and report.repeats, str(report)
    assert report.compared > 20
    assert "bit for bit" in str(report)
    assert report.ops > 30 and not report.other_op
    assert f"{report.ops} ops are those of a plain run" in str(report)
    assert_equal(before, state_of([run.model], [run.optimizer]), "verify changed")


def test_training_goes_on_after_verify_as_if_it_had_not_been() -> None:
    def losses(verified: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        run = mlp("adamw")
        step = _decorated(run, budget="90%")
        found = []
        for batch in run.batches:
            if verified:
                assert outsize.verify(step, *batch).equal
            found += [t.detach().clone() for t in results(step(*batch))]
            run.after()
        return found

    assert all(torch.equal(a, b) for a, b in zip(losses(False), losses(True), strict=True))


def test_one_flipped_bit_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    run = mlp("adamw")
    step = _decorated(run, budget="90%")
    variant = sys.modules["outsize.variant"].Variant
    honest = variant.run
    name, parameter = list(run.model.named_parameters())[1]

    def flip(self: Any, call: Any) -> Any:
        result = honest(self, call)
        parameter.detach().view(-1)[2:3].view(torch.int32).bitwise_xor_(1)
        return result

    monkeypatch.setattr(variant, "run", flip)
    report = outsize.verify(step, *run.batches[0])
    assert report.repeats and not report.equal
    (difference,) = report.differences
    assert difference.name == f"param:{name}"
    assert (
        "element [2]" in difference.text and f"1 of {parameter.numel()} differ" in difference.text
    )
    assert difference.op.startswith("op ") and ".py:" in difference.op, difference
    assert "1 of" in str(report)


def test_an_op_that_a_plain_run_does_not_do_is_named() -> None:
    """Its bits are the same all the same: what does it is only there when the step is captured."""
    run = mlp("sgd")

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden = run.model(x)
        if type(hidden).__name__ == "FakeTensor":
            hidden = hidden * 1.0
        loss = torch.nn.functional.mse_loss(hidden, target)
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        return loss

    run.step = step
    report = outsize.verify(_decorated(run, budget="90%"), *run.batches[0])
    assert report.repeats and not report.differences and not report.equal
    assert "aten.mul.Tensor" in report.other_op and "test_verify.py:" in report.other_op
    assert "where a plain run has op" in report.other_op
    assert str(report).startswith("equal bits, by other ops")


def test_a_step_that_does_not_repeat_is_told_from_a_wrong_plan() -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scale = torch.ones(())

    @outsize.step(model, optimizer, budget="64MiB", log=lambda line: None)
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = (model(batch) * scale).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    plain = step.function

    def noisy(batch: torch.Tensor) -> torch.Tensor:
        scale.fill_(int.from_bytes(os.urandom(4), "little"))
        return plain(batch)  # type: ignore[no-any-return]

    step.function = noisy
    report = outsize.verify(step, torch.ones(4, 8))
    assert not report.repeats and not report.equal
    assert "does not repeat without a plan either" in str(report)


def test_schedulers_are_put_back() -> None:
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    @outsize.step(model, optimizer, budget="64MiB", log=lambda line: None)
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step(torch.ones(4, 8))
    scheduler.step()
    before = scheduler.state_dict()
    assert outsize.verify(step, torch.ones(4, 8), also=[scheduler]).equal
    assert scheduler.state_dict() == before
    assert optimizer.param_groups[0]["lr"] == before["_last_lr"][0]


def test_what_cannot_be_verified_is_refused() -> None:
    with pytest.raises(outsize.BadInputError, match=r"decorated by outsize\.step"):
        outsize.verify(lambda batch: batch, 1)  # type: ignore[arg-type]
    run = mlp("sgd")
    with pytest.raises(outsize.BadInputError, match="state_dict and load_state_dict"):
        outsize.verify(_decorated(run, budget="90%"), *run.batches[0], also=[object()])
