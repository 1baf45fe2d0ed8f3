"""`python -m outsize.bench packing`: its own check, and rows of small instances."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_steps import DATA, needs_command

from outsize.bench import packing
from outsize.bench.commands import DONE


def test_the_check_finds_buffers_that_share_a_byte(tmp_path: Path) -> None:
    packed = tmp_path / "packed.csv"
    head = "id,lower,upper,size,offset\n"
    packed.write_text(head + "b0,0,2,4,0\nb1,1,3,4,4\nb2,2,4,4,0\n")
    assert packing.overlap_in(packed) is None
    packed.write_text(head + "b0,0,2,4,0\nb1,1,3,4,3\n")
    assert packing.overlap_in(packed) == "b1 and b0"


@needs_command
@pytest.mark.skipif(DATA is None, reason="no ../shared/data")
def test_rows_of_small_instances(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    for only, cases in (("large G_1", ["G_1"]), ("challenging F", ["F"]), ("dtr-unet", None)):
        assert packing.main(["--only", only, "--work", "500000", "--json", str(out)]) == DONE
        rows = json.loads(out.read_text())["rows"]
        assert cases is None or [row["case"] for row in rows] == cases
        for row in rows:
            assert row["ok"] and row["bound"] == row["height"]
