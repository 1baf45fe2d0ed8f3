"""`python -m outsize.bench planning`: its rows, on the smallest of the public traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_steps import DATA, needs_command

from outsize.bench import planning
from outsize.bench.commands import DONE


def test_cases_have_names_of_their_own_and_something_to_hold_them_against() -> None:
    cases = list(planning.cases())
    assert len({(case.family, case.name) for case in cases}) == len(cases)
    for case in cases:
        if case.wanted is None:
            assert case.met(None) and not case.met(1.0)
        else:
            assert not case.met(None)
            better = case.wanted * (0.99 if case.lower_is_better else 1.01)
            assert case.met(better) and case.met(case.wanted) != case.strict


@needs_command
@pytest.mark.skipif(DATA is None, reason="no ../shared/data")
def test_rows_of_a_small_trace(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert planning.main(["--only", "VGG16_256", "--work", "5", "--json", str(out)]) == DONE
    rows = json.loads(out.read_text())["rows"]
    assert [row["case"] for row in rows] == [f"checkmate-VGG16_256 {p}%" for p in (95, 90, 85)]
    for row in rows:
        assert row["ok"] and row["better"] == "lower"
        assert row["bound"] <= row["outsize"] <= row["wanted"]
