"""How the tests of the `outsize` command call it, and the steps that they plan.

The command is build/bin/outsize, or the program that OUTSIZE_COMMAND names.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("OUTSIZE_COMMAND", ROOT / "build" / "bin" / "outsize"))
DATA = next(
    (f for f in (ROOT / "shared" / "data", ROOT.parent / "shared" / "data") if f.is_dir()), None
)

needs_command = pytest.mark.skipif(not COMMAND.exists(), reason=f"no {COMMAND}: run make build")

Fields = dict[str, Any]


def run(*words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *map(str, words)], input=stdin, capture_output=True, text=True, timeout=300
    )


def answer(*words: object, code: int = 0, stdin: str | None = None) -> Fields:
    """The one JSON object on stdout; nothing else may be on either stream."""
    done = run(*words, "--json", stdin=stdin)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    fields = json.loads(done.stdout)
    assert isinstance(fields["outsize"], str)
    assert ("error" in fields) == (code != 0)
    return fields


def refusal(*words: object, code: int = 2, stdin: str | None = None) -> str:
    """The error's message, the same for people and for scripts."""
    error = answer(*words, code=code, stdin=stdin)["error"]
    assert error["kind"] == {1: "infeasible", 2: "bad input"}[code]
    plain = run(*words, stdin=stdin)
    assert plain.returncode == code
    assert plain.stderr == f"outsize: {error['message']}\n"
    return error["message"]


def trace(
    storages: Sequence[tuple[str, int, str]], ops: Sequence[tuple[str, int, Fields]]
) -> Fields:
    return {
        "format": "op-trace",
        "version": 1,
        "title": "by hand",
        "storages": [{"id": i, "bytes": b, "role": r} for i, b, r in storages],
        "ops": [{"name": n, "ns": ns, **touched} for n, ns, touched in ops],
    }


# Forward makes A, B, C of 100 bytes; backward reads them in reverse. w is read by all and updated.
CHAIN = trace(
    [("w", 50, "persistent"), ("x", 100, "input")]
    + [(s, 100, "activation") for s in ("A", "B", "C", "gC", "gB", "gA")]
    + [("loss", 4, "output")],
    [
        ("f1", 10, {"reads": ["w", "x"], "makes": ["A"]}),
        ("f2", 20, {"reads": ["w", "A"], "makes": ["B"]}),
        ("f3", 30, {"reads": ["w", "B"], "makes": ["C"]}),
        ("loss", 5, {"reads": ["C"], "makes": ["loss", "gC"]}),
        ("b3", 30, {"reads": ["w", "B", "C", "gC"], "makes": ["gB"]}),
        ("b2", 20, {"reads": ["w", "A", "B", "gB"], "makes": ["gA"]}),
        ("update", 10, {"reads": ["gA"], "mutates": ["w"]}),
    ],
)
CHAIN_COMPUTE = 125
# While b3 runs: w, A, B, C, gC, gB, loss (x goes after f1).
CHAIN_PEAK = 50 + 5 * 100 + 4
CHAIN_FLOOR = 50 + 4 * 100  # b3's and b2's own operands

# w and v are each read by one op. In 100 bytes one of them has to come in each step: 100 ns.
TWO = trace(
    [("w", 100, "persistent"), ("v", 100, "persistent")],
    [("a", 10, {"reads": ["w"]}), ("b", 10, {"reads": ["v"]})],
)


def imported(folder: Path, form: Fields, name: str = "graph.json") -> Path:
    source = folder / f"trace-{name}"
    source.write_text(json.dumps(form))
    graph = folder / name
    answer("import", "op-trace", source, "-o", graph)
    return graph
