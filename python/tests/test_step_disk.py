"""The disk tier: what doesn't fit the budget lies in a file, to the same bits, and nothing on the host."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from step_models import minimizing

import outsize
from outsize.errors import BadInputError, InfeasibleError

STEPS = 4


def _training() -> tuple[torch.nn.Module, torch.optim.Optimizer, Callable[[torch.Tensor], Any]]:
    torch.manual_seed(5)
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, optimizer, minimizing(optimizer, lambda batch: model(batch).square().mean())


def _batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.randn(512, 256, generator=generator) for _ in range(STEPS)]


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    moments = [
        value
        for parameter in model.parameters()
        for value in optimizer.state[parameter].values()
        if isinstance(value, torch.Tensor)
    ]
    return [t.detach().clone() for t in (*model.state_dict().values(), *moments)]


def _unplanned() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    model, optimizer, step = _training()
    torch.manual_seed(1)
    losses = [step(batch).detach().clone() for batch in _batches()]
    return losses, _state(model, optimizer)


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))


def test_a_step_on_disk_has_the_same_bits(tmp_path: Path) -> None:
    losses, state = _unplanned()
    model, optimizer, step = _training()
    planned = outsize.step(model, optimizer, budget="45%", disk=tmp_path, clock=True, poison=True)(
        step
    )
    torch.manual_seed(1)
    got = []
    for batch in _batches():
        got.append(planned(batch).detach().clone())
        assert planned.last is not None
        moved = planned.last.moved
        assert moved["write"] > 0 and moved["read"] > 0, moved
        assert moved["out"] == moved["in"] == 0, moved
        assert planned.last.peak_bytes <= planned.last.forecast.peak_bytes
    assert planned.last is not None
    assert planned.last.forecast.host_bytes == 0
    assert planned.last.forecast.disk_bytes > 0
    assert _equal(losses, got)
    assert _equal(state, _state(model, optimizer)), "homes on disk read otherwise between steps"
    planned.close()
    assert _equal(state, _state(model, optimizer))
    assert list(tmp_path.iterdir()) == [], "the tier's file has a name"


def test_what_the_user_writes_into_a_home_on_disk_counts(tmp_path: Path) -> None:
    def run(planned: bool) -> list[torch.Tensor]:
        model, optimizer, step = _training()
        call: Callable[[torch.Tensor], Any] = step
        if planned:
            call = outsize.step(model, optimizer, budget="45%", disk=tmp_path)(step)
        torch.manual_seed(1)
        for batch in _batches():
            call(batch)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.clamp_(-0.03, 0.03)
        return _state(model, optimizer)

    assert _equal(run(False), run(True))


def test_a_checkpoint_from_disk_homes_loads_into_a_plain_run(tmp_path: Path) -> None:
    model, optimizer, step = _training()
    planned = outsize.step(model, optimizer, budget="45%", disk=tmp_path)(step)
    torch.manual_seed(1)
    batches = _batches()
    for batch in batches[:2]:
        planned(batch)
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "checkpoint.pt")
    generator = torch.get_rng_state()
    planned.close()
    again, its_optimizer, its_step = _training()
    weights, moments = torch.load(tmp_path / "checkpoint.pt")
    again.load_state_dict(weights)
    its_optimizer.load_state_dict(copy.deepcopy(moments))
    torch.set_rng_state(generator)
    losses = [its_step(batch).detach().clone() for batch in batches[2:]]
    assert _equal(_unplanned()[0][2:], losses)


@pytest.mark.parametrize(
    ("disk", "says"),
    [("missing", "there is no folder"), ("file", "is a file"), (7, "wanted a folder")],
)
def test_a_folder_that_will_not_do_is_refused(tmp_path: Path, disk: Any, says: str) -> None:
    model, optimizer, _ = _training()
    (tmp_path / "file").write_text("")
    folder = tmp_path / disk if isinstance(disk, str) else disk
    with pytest.raises(BadInputError, match=says):
        outsize.step(model, optimizer, budget="45%", disk=folder)


def test_host_and_disk_together_are_refused(tmp_path: Path) -> None:
    model, optimizer, _ = _training()
    with pytest.raises(BadInputError, match="one tier below the device"):
        outsize.step(model, optimizer, budget="45%", host="1GiB", disk=tmp_path)


def test_steps_of_one_model_share_one_disk(tmp_path: Path) -> None:
    model, optimizer, step = _training()
    first = outsize.step(model, optimizer, budget="45%", disk=tmp_path)(step)
    first(_batches()[0])
    second = outsize.step(model, optimizer, budget="45%")(lambda batch: step(batch))
    with pytest.raises(BadInputError, match="give both the same disk="):
        second(_batches()[0])
    first.close()


def test_a_disk_with_too_little_space_is_refused_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, optimizer, step = _training()
    module = sys.modules["outsize.step"]  # `outsize.step` is the function
    monkeypatch.setattr(module, "available_disk_bytes", lambda folder: 1 << 20)
    planned = outsize.step(model, optimizer, budget="45%", disk=tmp_path)(step)
    before = _state(model, optimizer)
    with pytest.raises(InfeasibleError, match="on the disk, budget"):
        planned(_batches()[0])
    assert _equal(before, _state(model, optimizer))
