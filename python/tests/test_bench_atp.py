"""`python -m outsize.bench atp`: its nets, and its rows on the smallest of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_steps import needs_command

from outsize.bench import atp
from outsize.bench.instances import ask
from outsize.bench.nets import NETS


@needs_command
@pytest.mark.parametrize("net", NETS)
def test_nets_grow_with_the_batch(net: str, tmp_path: Path) -> None:
    machine = ask("machine", "show", "v100-16gb-pcie3")
    kept = atp.largest_kept(tmp_path, net, machine)
    assert atp.peak_of(tmp_path, net, kept, machine) <= machine["device_bytes"]
    assert atp.peak_of(tmp_path, net, kept + kept // 25 + 1, machine) > machine["device_bytes"]


def test_rows_hold_outsize_against_the_best() -> None:
    points = [
        {
            "net": "n", "machine": "m", "model_peak": 9.0, "bound_samples_per_s": 10.0,
            "peak_of_memory": factor,
            "samples_per_s": {"keep": kept, "atp": 7.0, "outsize": ours},
        }
        for factor, kept, ours in ((1.0, 5.0, 7.5), (2.0, None, 6.5))
    ]  # fmt: skip
    best, other = atp.rows_of(points, ["keep", "atp", "outsize"])
    assert (best["peer"], best["peer_value"], best["outsize"], best["ok"]) == (
        "keep",
        5.0,
        7.5,
        True,
    )
    assert not other["ok"]  # below atp at the second batch
    assert best["largest_of_memory"] == 2.0


def test_files_are_graphs() -> None:
    machine = {
        "name": "m", "flops_per_s": {"float32": 1e12}, "achieved_fraction": 1.0,
        "memory_bytes_per_s": 1e11, "launch_ns": 5,
    }  # fmt: skip
    graph = NETS["cnn"](2).file(machine)
    assert len(graph["ops"]) == len(graph["profile"]["ops"])
    assert json.loads(json.dumps(graph)) == graph
