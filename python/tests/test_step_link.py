"""Copies slowed to another machine's links: the same bits, no faster than those links, and foretold so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from step_models import Training, mlp
from step_parity import check_budget, compare, sizes_of, train

import outsize
import outsize_core


def make() -> Training:
    return mlp("adamw", depth=4, width=48, batch=96)


@pytest.fixture
def card(tmp_path: Path) -> str:
    """A machine whose links, for what this one computes, move 2 MB/s each way and 3 together."""
    here = json.loads(outsize_core.measure_machine({"copy_bytes": 1 << 20, "rounds": 2}))
    machine = {
        "format": "outsize-machine",
        "version": 1,
        "name": "card",
        "flops_per_s": {"float32": here["flops_per_s"]["float32"]},
        "out": {"latency_ns": 1000, "bytes_per_s": 2_000_000},
        "in": {"latency_ns": 1000, "bytes_per_s": 2_000_000},
        "both_bytes_per_s": 3_000_000,
    }
    path = tmp_path / "card.json"
    path.write_text(json.dumps(machine))
    return str(path)


def test_a_slower_link_gives_the_same_bits_and_takes_its_time(card: str) -> None:
    wanted = train(make)
    compare(wanted, train(make))
    budget = sizes_of(make)[1] * 6 // 10
    slow = train(make, budget=budget, link=card, planner="swap-everything", poison=True)
    compare(wanted, slow)
    check_budget(slow, budget)
    record = slow.records[-1]
    out, into = record.moved["out"], record.moved["in"]
    # The machine is measured again by the step, so that its scale is not known to the byte.
    least = max(out, into) / 2_000_000, (out + into) / 3_000_000
    assert min(out, into) > 50_000
    assert record.step_s > 0.5 * max(least)
    assert record.forecast.step_s > 0.5 * max(least)
    # As fast as they can, the same copies take a small part of that.
    assert train(make, budget=budget, planner="swap-everything").records[-1].step_s < max(least) / 4


def test_a_link_is_refused_where_it_would_mean_nothing(card: str, tmp_path: Path) -> None:
    run = make()

    def decorate(**options: object) -> None:
        outsize.step(run.model, run.optimizer, budget="1GB", **options)

    with pytest.raises(outsize.BadInputError, match="did you mean .unit."):
        decorate(link="unti")
    with pytest.raises(outsize.BadInputError, match="disk=.* together: those links lie between"):
        decorate(link=card, disk=str(tmp_path))
    with pytest.raises(outsize.BadInputError, match="machine='unit' together: plans are made for"):
        decorate(link=card, machine="unit")


def test_a_link_faster_than_this_machine_is_refused_before_the_step(card: str) -> None:
    fast = json.loads(Path(card).read_text())
    for link in ("out", "in"):
        fast[link]["bytes_per_s"] = 10**15
    fast["both_bytes_per_s"] = 0
    Path(card).write_text(json.dumps(fast))
    with pytest.raises(outsize.BadInputError, match="name a machine with slower links"):
        train(make, budget=10_000_000, link=card)
