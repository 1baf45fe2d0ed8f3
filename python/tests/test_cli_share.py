"""`outsize share` from outside."""

from __future__ import annotations

import json
from pathlib import Path

from cli_steps import answer, needs_command, refusal, run

pytestmark = needs_command

DEVICE = {
    "memory_bytes": 10,
    "page_bytes": 1,
    "memory_bytes_per_s": 1_000_000_000,
    "swap_in_bytes_per_s": 100_000_000,
    "swap_out_bytes_per_s": 50_000_000,
}
JOBS = {
    "format": "outsize-jobs",
    "version": 1,
    "device": DEVICE,
    "jobs": [{"name": n, "subtask_bytes": 6, "compute_ns": [100]} for n in ("a", "b")],
}


def test_policies_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(JOBS))
    rows = answer("share", "simulate", file, "--policy", "lru,swap-aware,fifo")["rows"]
    # The sums are in outsize/share/simulate_test.cc.
    times = {row["policy"]: [job["response_s"] for job in row["jobs"]] for row in rows}
    assert times == {
        "lru": [272e-9, 298e-9],
        "swap-aware": [202e-9, 112e-9],
        "fifo": [112e-9, 224e-9],
    }
    assert rows[0]["makespan_s"] == 298e-9
    assert rows[1]["jobs"][0]["swap_percent"] == 34
    assert rows[1]["jobs"][1]["slowdown"] == 1
    assert rows[0]["swapped_out"] == 8


def test_a_row_for_each_quantum() -> None:
    words = ("share", "simulate", "nvshare-big-90", "--policy", "round-robin")
    rows = answer(*words, "--quantum", "1000,5")["rows"]
    assert [row["quantum_s"] for row in rows] == [1000, 5]
    assert rows[0]["makespan_s"] < rows[1]["makespan_s"]


def test_a_case_can_be_printed_changed_and_read(tmp_path: Path) -> None:
    assert "equal-low" in answer("share", "cases")["cases"]
    file = tmp_path / "case.json"
    answer("share", "case", "equal-low", "-o", file)
    of_file = answer("share", "simulate", file, "--policy", "lru")["rows"]
    assert of_file == answer("share", "simulate", "equal-low", "--policy", "lru")["rows"]
    printed = run("share", "case", "equal-low")
    assert printed.stdout == file.read_text()
    piped = answer("share", "simulate", "-", "--policy", "lru", stdin=printed.stdout)
    assert piped["rows"] == of_file


def test_bad_use_names_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'swap-aware'?" in refusal(
        "share", "simulate", "equal-low", "--policy", "swap-awar"
    )
    assert "did you mean 'equal-low'?" in refusal("share", "case", "equal-lo")
    assert "did you mean equal-low?" in refusal("share", "simulate", "equal-lo")
    assert "had '0'" in refusal("share", "simulate", "equal-low", "--quantum", "0")
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({**JOBS, "jobs": []}))
    assert "no jobs" in refusal("share", "simulate", file)
