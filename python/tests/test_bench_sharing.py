"""`python -m outsize.bench sharing`: its rows, and a sweep's answer as a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_steps import COMMAND, needs_command

from outsize.bench import sharing
from outsize.bench.commands import DONE

pytestmark = needs_command


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSIZE_COMMAND", str(COMMAND))


@pytest.mark.parametrize(
    "only", ["task sets equal-low", "turns nvshare-big-90", "broker equal-low"]
)
def test_rows_beside_what_was_published(only: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert sharing.main(["--only", only, "--json", str(out)]) == DONE
    rows = json.loads(out.read_text())["rows"]
    assert rows
    for row in rows:
        assert row["ok"]
        assert row["better"] in ("higher", "lower", "equal")
        assert row["peer_source"].partition(":")[0] in ("published", "measured here")


def test_fitted_rows_are_marked() -> None:
    rows = [row.case for row in sharing.turns_rows(sharing.COLUMNS[3])]
    fitted = [case.partition(" ")[2] for case in rows if "(fitted)" in case]
    assert fitted == ["TQ 1000 (fitted)", "TQ 30 (fitted)", "scheduler off (fitted)"]


def test_a_sweep_is_a_job() -> None:
    moved = {"out": 10, "in": 30, "write": 0, "read": 0}
    rows = [
        {"device": 40, "feasible": False},
        {"device": 60, "feasible": True, "planned_for": 60, "step_ns": 9, "moved": moved},
        {"device": 80, "feasible": True, "planned_for": 60, "step_ns": 9, "moved": moved},
        {"device": 99, "feasible": True, "planned_for": 99, "step_ns": 7, "moved": moved},
    ]
    job = sharing.job_of_sweep("a", {"rows": rows}, steps=5, host_ns=2)
    assert [point["budget_bytes"] for point in job["curve"]] == [60, 99]
    assert (job["subtask_bytes"], job["compute_ns"], job["rounds"]) == (99, [7], 5)
    assert job["curve"][0]["moved_bytes"] == 30
