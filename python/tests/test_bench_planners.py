"""`python -m outsize.bench planners`: its rows, page and picture on one small step."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path

import pytest
from cli_steps import needs_command

from outsize.bench import planners
from outsize.bench.commands import DONE, INFEASIBLE
from outsize.bench.planners_page import picture, planners_by_speed, table, tally


def row(planner: str, time: float | None, graph: str = "g", least: float | None = None) -> dict:  # type: ignore[type-arg]
    return {
        "graph": graph, "percent": 50, "planner": planner, "step_over_compute": time,
        "bound_over_compute": 1.0, "swapped_bytes": None if time is None else 10,
        "recomputed": None if time is None else 0.25, "reruns": 0, "seconds": 0.5,
        "least_of_peak": least, "why": "",
    }  # fmt: skip


ROWS = [
    row("slow", 2.0),
    row("fast", 1.0),
    row("never", None),
    row("slow", 2.0, "h"),
    row("fast", 1.5, "h"),
    row("never", None, "h", least=0.611),
]


def test_most_plans_come_first_and_then_the_fastest() -> None:
    assert planners_by_speed(ROWS) == ["fast", "slow", "never"]
    assert tally(ROWS).splitlines()[2:] == [
        "| fast | 2 of 2 | 2 |",
        "| slow | 2 of 2 | 0 |",
        "| never | 0 of 2 | 0 |",
    ]


def test_the_table_says_from_which_budget_there_is_a_plan() -> None:
    lines = table(ROWS).splitlines()
    assert lines[2] == "| g | 50 % | slow | 2.000 | 1.000 | 10 B | 25.0% | 0.50 |"
    assert lines[4] == "| g | 50 % | never | - |  |  |  | 0.50 |"
    assert lines[7] == "| h | 50 % | never | from 62 % |  |  |  | 0.50 |"


def test_the_picture_has_a_square_a_row() -> None:
    root = xml.etree.ElementTree.fromstring(picture(ROWS))
    inside = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{inside}rect")) == 1 + len(ROWS)
    words = [element.text for element in root.findall(f"{inside}text")]
    assert words.count("2.00") == 2 and "62 %" in words and "never" in words


def test_a_case_that_only_others_plan_is_named() -> None:
    def one(planner: str, time: float | None) -> planners.Outcome:
        return planners.Outcome(**row(planner, time))

    assert planners.lacking([one("dtr", 1.5), one("outsize", None)]) == ["g 50%"]
    assert planners.lacking([one("dtr", None), one("outsize", None)]) == []
    assert planners.lacking([one("dtr", 1.5), one("outsize", 1.2)]) == []


@needs_command
def test_every_planner_on_a_small_step(tmp_path: Path) -> None:
    docs, file = tmp_path / "docs", tmp_path / "rows.json"
    words = ["--only", "unet-16 75%", "--work", "4", "--docs", str(docs), "--json", str(file)]
    assert planners.main(words) == DONE
    rows = {row["planner"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == planners.known_planners()
    assert not set(planners.LEFT_OUT) & set(rows)
    assert rows["keep"]["step_over_compute"] is None and rows["keep"]["least_of_peak"] >= 1
    for one in rows.values():
        if one["step_over_compute"] is None:
            assert one["least_of_peak"] is None or one["least_of_peak"] > 0.75
            assert one["why"]
        else:
            assert one["step_over_compute"] >= max(1.0, one["bound_over_compute"] - 1e-9)
    # Nothing of one planner's is the others': swaps alone, reruns alone.
    assert rows["g10"]["swapped_bytes"] > 0 and rows["g10"]["recomputed"] == 0
    assert rows["dtr"]["swapped_bytes"] == 0 and rows["dtr"]["recomputed"] > 0
    assert sorted(path.name for path in docs.iterdir()) == ["comparison.md", "comparison.svg"]
    page = (docs / "comparison.md").read_text()
    assert "python -m outsize.bench planners --work 4 --seed 1 --docs docs" in page
    assert all(f"| unet-16 | 75 % | {planner} |" in page for planner in rows)


@needs_command
def test_the_page_is_the_same_but_for_the_seconds(tmp_path: Path) -> None:
    words = ["--only", "unet-16 50%", "--work", "4", "--planners", "dtr,outsize,g10"]
    for name in ("a", "b"):
        assert planners.main([*words, "--docs", str(tmp_path / name)]) == DONE
    pictures = [(tmp_path / name / "comparison.svg").read_bytes() for name in ("a", "b")]
    assert pictures[0] == pictures[1]


@needs_command
def test_a_plan_that_only_others_have_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planners, "PERCENTS", (75,))
    words = ["--only", "unet-16", "--work", "4", "--planners", "dtr,g10"]
    assert planners.main(words) == INFEASIBLE
    assert "outsize has no plan, others have: unet-16 75%" in capsys.readouterr().out
