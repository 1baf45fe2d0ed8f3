"""The bench's turns, bits and limits, with a stand-in for the planned side."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench_fakes import THIS_FILE, WORKLOAD

from outsize.bench.commands import status_of
from outsize.bench.comparison import (
    BUILD_FOLDER,
    UNPLANNED,
    Comparison,
    Listener,
    Settings,
    Workers,
    compare,
)
from outsize.bench.process import WorkerError
from outsize.bench.report import all_checks, json_fields, same_run
from outsize.bench.short_runs import Limited, ShortRuns, run_beside

STEPS = 4


def settings_for(folder: Path, fault: str) -> Settings:
    return Settings(
        WORKLOAD,
        STEPS,
        budget_of=lambda peak: peak // 2,
        threads=1,
        options={"host": "1GiB"},
        folder=folder,
        planned_command=[sys.executable, str(THIS_FILE), fault],
    )


def compared(folder: Path, fault: str) -> tuple[Workers, Comparison]:
    workers = Workers(settings_for(folder, fault))
    return workers, compare(workers, Listener())


@pytest.fixture(scope="module")
def folder() -> Path:
    # Of the build, so that the allocator is compiled once for all tests and benches.
    return BUILD_FOLDER / "bench"


@pytest.fixture(scope="module")
def honest(folder: Path) -> tuple[Comparison, ShortRuns]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outsize.bench.comparison.CONTROL_STEPS", STEPS - 1)
        workers, comparison = compared(folder, "none")
    return comparison, run_beside(workers, comparison, at_floor=True)


def test_equal_runs_pass_every_check(honest: tuple[Comparison, ShortRuns]) -> None:
    comparison, beside = honest
    failed = {c.name: c.had for c in all_checks(comparison, beside) if c.must and not c.ok}
    assert failed == {}
    assert sorted(comparison.after_plan) == [0, 1]
    assert len(comparison.planned.steps) == len(comparison.unplanned.steps) == STEPS
    assert len(comparison.control.steps) == STEPS - 1
    # Parameters, moments, batch norm's statistics and three generators are among what was compared.
    names = " ".join(comparison.planned.digests)
    for name in ("parameter 0.weight", "buffer 1.running_mean", "optimizer exp_avg of 3.bias"):
        assert name in names
    assert "generator of torch" in names and "generator of Python" in names


def test_unplanned_processes_cannot_import_outsize(honest: tuple[Comparison, ShortRuns]) -> None:
    comparison, _ = honest
    assert comparison.unplanned.ended["outsize_imported"] is False
    # Not by luck: the same file, asked to, fails.
    script = (
        f"import runpy, sys; sys.stdin = open('/dev/null')\n"
        f"try: runpy.run_path({UNPLANNED[1]!r}, run_name='__main__')\n"
        "except OSError: pass\n"
        "import outsize\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1 and "No module named 'outsize'" in done.stderr


# What users script against: may be joined by other fields, and never loses one.
CONTRACT = set(
    "outsize model parameters batch threads budget_bytes eager_peak_bytes measured_peak_bytes"
    " predicted_peak_bytes bit_equal steps eager_step_s planned_step_s ratio predicted_step_s bound_s"
    " moved recomputed_ops control_bit_equal eager_at_budget losses".split()
)
JSON_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float,),
    "true or false": (bool,),
    "object": (dict,),
    "object or null": (dict, type(None)),
    "list": (list,),
}


def documented_fields() -> dict[str, str]:
    """The kinds of the fields in docs/cli.md's table of the training bench's, by name."""
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    section = text.partition("## The training bench's `--json`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.MULTILINE)
    return {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)}


def test_json_has_the_fields_that_users_script_against(
    honest: tuple[Comparison, ShortRuns],
) -> None:
    comparison, beside = honest
    fields = json_fields(comparison, beside, all_checks(comparison, beside), "1", 2.0)
    fields = json.loads(json.dumps(fields))
    assert fields["floor_run"] is not None
    documented = documented_fields()
    assert CONTRACT <= documented.keys()
    assert fields.keys() == documented.keys()
    wrong = {
        name: type(fields[name]).__name__
        for name, kind in documented.items()
        if type(fields[name]) not in JSON_KINDS[kind]
    }
    assert wrong == {}
    assert fields["bit_equal"] and fields["control_bit_equal"]
    assert fields["batch"] == 1024 and len(fields["losses"]) == STEPS
    assert fields["parameters"] == 64 * 1024 + 1024 + 2 * 1024 + 1024 * 8 + 8
    assert fields["budget_bytes"] == fields["eager_peak_bytes"] // 2
    assert fields["ratio"] == fields["planned_step_s"] / fields["eager_step_s"]
    assert fields["predicted_step_s"] == 0.01  # the steady step's, not the first's 0.02
    assert fields["moved"] == {"out": 1000, "in": 2000, "write": 0, "read": 0}
    assert fields["eager_at_budget"].startswith("failed: ")
    assert "can't allocate memory: you tried to allocate" in fields["eager_at_budget"]
    assert fields["floor_run"]["recomputed"]["aten.bernoulli_.float"] == 2 * 2


def test_one_bit_and_one_byte_are_found_and_named(folder: Path) -> None:
    _, comparison = compared(folder, "wrong")
    assert same_run(comparison.unplanned, comparison.control) is None
    # The parameter was changed after the second step, so no loss before the third can show it.
    assert comparison.planned.losses[:2] == comparison.unplanned.losses[:2]
    assert (
        comparison.planned.digests["parameter 0.weight"]
        != comparison.unplanned.digests["parameter 0.weight"]
    )
    passed = Limited(1, None)
    checks = all_checks(comparison, ShortRuns(passed, passed, passed, None))
    failed = {check.name: check.had for check in checks if check.must and not check.ok}
    assert set(failed) == {
        "planned = unplanned",
        f"peak, all {STEPS} steps",
        "arena and host slab",
        "forecast of the peak",
        "unplanned, tensors in the budget",  # both passed, and must not
        "unplanned, heap in the budget",
    }
    assert (
        "loss of step" in failed["planned = unplanned"]
        or "parameter" in failed["planned = unplanned"]
    )


def test_a_refusal_of_the_planned_side_comes_back(folder: Path) -> None:
    workers = Workers(settings_for(folder, "infeasible"))
    with workers.start("planned-test", workers.settings.planned_command) as planned:
        workers.send_build(planned)
        planned.receive()
        with pytest.raises(WorkerError, match="the floor is 2000 bytes, budget 1000") as caught:
            planned.request("prepare", budget=1000)
        assert (caught.value.worker, caught.value.doing) == ("planned-test", "prepare")
        assert status_of(caught.value) == 1
        # An option that step() does not take is bad use, and is said before anything is run.
        with pytest.raises(WorkerError, match="unexpected keyword argument 'link'") as caught:
            planned.request("check", budget=1000, link="v100-16gb-pcie3")
        assert status_of(caught.value) == 2
