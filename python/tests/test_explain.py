"""`outsize.explain` names what sets peak and floor, and plans each way out of it; nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from parity import assert_equal, state_of
from step_models import Training, mlp, plain_step

import outsize


def _decorated(run: Training, **options: Any) -> outsize.Step:
    options = {"log": lambda line: None, "work": 50, **options}
    return outsize.step(run.model, run.optimizer, *run.others, **options)(run.step)


def _held(found: outsize.Explanation) -> int:
    return sum(holder.bytes for holder in found.holders) + found.workspace_bytes


def _wide(rows: int) -> Training:
    """Activations of `rows` x 1 KiB beside small weights, so that ops over them are what is large."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(rows, 8), torch.randn(rows, 8))]
    return Training(model, optimizer, plain_step(model, optimizer), batches)


def test_the_peak_is_named_with_all_that_holds_it_and_ways_are_planned() -> None:
    run = mlp("adamw")
    step = _decorated(run, budget="60%")
    before = state_of([run.model], [run.optimizer])
    found = outsize.explain(step, *run.batches[0])
    assert_equal(before, state_of([run.model], [run.optimizer]), "explain changed")
    assert found.sets == "peak" and found.budget_bytes == int(0.6 * found.unplanned_peak_bytes)
    assert _held(found) == found.unplanned_peak_bytes
    assert found.peak.name.startswith("aten.") and found.peak.file.endswith(".py")
    assert found.peak.line > 0 and str(found.peak).startswith(f"op {found.peak.op} ")
    assert [h.bytes for h in found.holders] == sorted(
        (h.bytes for h in found.holders), reverse=True
    )
    parameters = [h for h in found.holders if h.name.startswith("param:")]
    assert sum(h.bytes for h in parameters) == sum(p.nbytes for p in run.model.parameters())
    assert all(h.made_by is None and h.role == "parameter" for h in parameters)
    made = [h for h in found.holders if h.role == "activation"]
    assert made and all(h.made_by is not None and h.last_used_by is not None for h in made)

    ways = {way.name: way for way in found.ways}
    assert set(ways) == {"all together", "host", "recompute", "split", "more budget"}
    planned = [way for way in found.ways if way.forecast is not None]
    assert [w.saves_bytes for w in planned] == sorted(
        (w.saves_bytes for w in planned), reverse=True
    )
    for way in planned:
        assert way.forecast is not None
        assert way.forecast.peak_bytes <= way.budget_bytes
        assert way.saves_bytes == found.unplanned_peak_bytes - way.forecast.peak_bytes
        assert way.fits == (way.budget_bytes <= found.budget_bytes)
    host, recompute, more = (ways[n].forecast for n in ("host", "recompute", "more budget"))
    assert host is not None and recompute is not None and more is not None
    assert sum(host.moved.values()) > 0 and not host.recomputed
    assert sum(recompute.moved.values()) == 0 and recompute.recomputed
    assert sum(more.moved.values()) == 0 and not more.recomputed
    assert not ways["more budget"].fits and ways["all together"].fits
    assert str(found.peak) in str(found) and str(found.floor) in str(found)
    assert all(way.name in str(found) for way in found.ways)


def test_the_forecast_of_all_together_is_what_the_step_then_does() -> None:
    run = mlp("adamw")
    step = _decorated(run, budget="70%")
    found = outsize.explain(step, *run.batches[0])
    step(*run.batches[0])
    assert step.last is not None and found.way("all together").forecast is not None
    assert step.last.forecast.unplanned_peak_bytes == found.unplanned_peak_bytes
    assert step.last.forecast.peak_bytes <= found.budget_bytes
    assert step.last.forecast.floor_bytes == found.floor_bytes
    step.close()


def test_below_the_floor_its_op_is_named_and_splitting_goes_below_it() -> None:
    run = _wide(rows=4096)
    whole = outsize.explain(_decorated(run, budget="100%"), *run.batches[0])
    assert whole.sets == "peak"
    # The backward pass of GELU: what came out of the first layer, its gradient, and the one it makes.
    assert whole.floor.name == "aten.gelu_backward.default"
    assert whole.floor_bytes == 3 * 4096 * 256 * 4
    found = outsize.explain(_decorated(run, budget=whole.floor_bytes - 1), *run.batches[0])
    assert found.sets == "floor" and found.floor == whole.floor
    assert _held(found) == found.floor_bytes
    assert [h.bytes for h in found.holders] == [4096 * 256 * 4] * 3
    split, host = found.way("split"), found.way("host")
    assert split.forecast is not None and split.forecast.floor_bytes < found.floor_bytes
    assert split.fits and split.saves_bytes > found.unplanned_peak_bytes - found.floor_bytes
    assert host.forecast is not None and host.forecast.floor_bytes == found.floor_bytes
    assert not host.fits and host.budget_bytes >= found.floor_bytes
    together = found.way("all together")
    assert together.fits and together.forecast is not None
    assert together.forecast.floor_bytes == split.forecast.floor_bytes


def test_a_smaller_batch_saves_what_its_own_peak_lacks() -> None:
    run = _wide(rows=2048)
    half = tuple(t[:1024] for t in run.batches[0])
    step = _decorated(run, budget="60%")
    found = outsize.explain(step, *run.batches[0], smaller=half)
    way = found.way("smaller batch")
    alone = outsize.explain(step, *half)
    assert way.forecast is not None and way.fits
    assert way.forecast.unplanned_peak_bytes == alone.unplanned_peak_bytes
    assert way.saves_bytes == found.unplanned_peak_bytes - way.forecast.peak_bytes
    # Of the activations, which are nearly all there is, half.
    assert 0.45 < way.saves_bytes / found.unplanned_peak_bytes < 0.55


def test_a_disk_is_a_way_where_its_folder_is_given(tmp_path: Path) -> None:
    run = mlp("adamw")
    found = outsize.explain(_decorated(run, budget="80%"), *run.batches[0], disk=str(tmp_path))
    disk, host = found.way("disk").forecast, found.way("host").forecast
    assert disk is not None and disk.disk_bytes > 0 and disk.host_bytes == 0
    assert host is not None and host.host_bytes > 0 and host.disk_bytes == 0
    own = outsize.explain(
        _decorated(run, budget="80%", disk=tmp_path), *run.batches[0], budget="75%"
    )
    assert own.budget_bytes == int(0.75 * own.unplanned_peak_bytes)
    together = own.way("all together").forecast
    assert together is not None and together.host_bytes == 0
    host = own.way("host").forecast
    assert host is not None and host.host_bytes > 0 and host.disk_bytes == 0


def test_a_way_without_a_plan_says_why() -> None:
    run = mlp("sgd")
    found = outsize.explain(_decorated(run, budget="90%", host=1), *run.batches[0])
    split = found.way("split")
    assert split.forecast is None and not split.fits and "cut into parts" in split.why
    assert found.ways[-1].forecast is None and found.ways[-1].why in str(found)
    with pytest.raises(KeyError):
        found.way("disk")


def test_what_cannot_be_explained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(outsize.BadInputError, match=r"decorated by outsize\.step"):
        outsize.explain(lambda batch: batch, 1)  # type: ignore[arg-type]
    run = mlp("sgd")
    step = _decorated(run, budget="1GiB")
    with pytest.raises(outsize.BadInputError, match="can't read 'much'"):
        outsize.explain(step, *run.batches[0], budget="much")
    with pytest.raises(outsize.BadInputError, match=r"as a tuple, had Tensor"):
        outsize.explain(step, *run.batches[0], smaller=run.batches[0][0])  # type: ignore[arg-type]
    with pytest.raises(outsize.BadInputError, match="there is no folder"):
        outsize.explain(step, *run.batches[0], disk=str(tmp_path / "none"))
    linked = _decorated(run, budget="1GiB", link="v100-16gb-pcie3")
    with pytest.raises(outsize.BadInputError, match="a plan with a disk has no host"):
        outsize.explain(linked, *run.batches[0], disk=str(tmp_path))
