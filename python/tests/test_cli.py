"""The `outsize` command from outside: what it prints with --json, its exit codes, the files it writes.

Runs build/bin/outsize, or the program that OUTSIZE_COMMAND names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("OUTSIZE_COMMAND", ROOT / "build" / "bin" / "outsize"))
DATA = next(
    (f for f in (ROOT / "shared" / "data", ROOT.parent / "shared" / "data") if f.is_dir()), None
)

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason=f"no {COMMAND}: run make build")

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
# b3 runs beside A and x (x is there to its last use, f1): w, A, B, C, gC, gB, loss.
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


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return imported(tmp_path, CHAIN)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return imported(tmp_path, TWO, "two.json")


@pytest.fixture
def long_chain(tmp_path: Path) -> Path:
    """Long enough that the planner is far from done when it is interrupted."""
    n = 700
    storages = [("w", 64, "persistent"), ("a0", 4096, "input")]
    storages += [(f"a{i}", 4096, "activation") for i in range(1, n + 1)]
    storages += [(f"g{i}", 4096, "activation") for i in range(n + 1)]
    ops: list[tuple[str, int, Fields]] = []
    for i in range(n):
        ops.append(("f", 900 + i, {"reads": ["w", f"a{i}"], "makes": [f"a{i + 1}"]}))
    ops.append(("loss", 100, {"reads": [f"a{n}"], "makes": [f"g{n}"]}))
    for i in range(n, 0, -1):
        reads = ["w", f"a{i}", f"a{i - 1}", f"g{i}"]
        ops.append(("b", 1800 + i, {"reads": reads, "makes": [f"g{i - 1}"]}))
    ops.append(("update", 10, {"reads": ["g0"], "mutates": ["w"]}))
    return imported(tmp_path, trace(storages, ops), "long.json")


# --- import -----------------------------------------------------------------------------------------


def test_import_says_what_it_read(tmp_path: Path) -> None:
    source = tmp_path / "trace.json"
    form = json.loads(json.dumps(CHAIN))
    form["storages"].append({"id": "idle", "bytes": 8, "role": "activation"})
    source.write_text(json.dumps(form))
    fields = answer("import", "op-trace", source, "-o", tmp_path / "graph.json")
    assert fields["ops"] == 7
    assert fields["storages"] == 10
    assert fields["compute_ns"] == CHAIN_COMPUTE
    assert fields["persistent_bytes"] == 50
    assert fields["warnings"] == ["1 storages are touched by no op"]
    assert json.loads((tmp_path / "graph.json").read_text())["format"] == "outsize-graph"


def test_dash_is_stdin_and_stdout(tmp_path: Path) -> None:
    graph = run("import", "op-trace", "-", "-o", "-", stdin=json.dumps(CHAIN))
    assert graph.returncode == 0
    assert json.loads(graph.stdout)["format"] == "outsize-graph"
    assert "persistent" in graph.stderr
    fields = answer("bound", "-", "--machine", "unit", "--device", "1000", stdin=graph.stdout)
    assert fields["compute_ns"] == CHAIN_COMPUTE
    plan = run("plan", "-", "--machine", "unit", "--device", "600", "-o", "-", stdin=graph.stdout)
    assert json.loads(plan.stdout)["format"] == "outsize-plan"


def test_dash_twice_is_refused(chain: Path) -> None:
    assert "standard input" in refusal("check", "-", "-", "--machine", "unit")
    done = run("plan", chain, "--machine", "unit", "--device", "600", "-o", "-", "--json")
    assert done.returncode == 2
    assert "standard output" in json.loads(done.stdout)["error"]["message"]


def test_import_of_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'op-trace'" in refusal("import", "op-trce", "x", "-o", tmp_path / "g")


# --- machine ----------------------------------------------------------------------------------------


def test_machine_list_has_the_presets() -> None:
    machines = {m["name"]: m for m in answer("machine", "list")["machines"]}
    assert machines["unit"]["out"] == {"latency_ns": 0, "bytes_per_s": 10**9}
    assert machines["v100-16gb-pcie3"]["device_bytes"] == 16 * 10**9


def test_machine_show_can_be_used_as_a_machine(chain: Path, tmp_path: Path) -> None:
    shown = run("machine", "show", "unit", "--json")
    (tmp_path / "shown.json").write_text(shown.stdout)
    answer("machine", "show", "unit", "-o", tmp_path / "written.json")
    assert "outsize" not in json.loads((tmp_path / "written.json").read_text())
    for file in ("shown.json", "written.json"):
        fields = answer("bound", chain, "--machine", tmp_path / file, "--device", "1000")
        assert fields["compute_ns"] == CHAIN_COMPUTE


def test_unknown_machine_names_the_nearest(chain: Path) -> None:
    message = refusal("bound", chain, "--machine", "v100-16gb-pcie4", "--device", "1000")
    assert "did you mean 'v100-16gb-pcie3'" in message


def test_machine_measure_without_an_environment_says_what_to_do(tmp_path: Path) -> None:
    alone = tmp_path / "bin" / "outsize"
    alone.parent.mkdir()
    shutil.copy(COMMAND, alone)
    done = subprocess.run(
        [alone, "machine", "measure", "-o", tmp_path / "m.json", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    message = json.loads(done.stdout)["error"]["message"]
    assert str(tmp_path / "venv" / "bin" / "python") in message
    assert "make build" in message
    assert not (tmp_path / "m.json").exists()


@pytest.mark.long
def test_machine_measure_writes_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("outsize_core", reason="the extension outsize_core is not built")
    if not (COMMAND.parents[1] / "venv").exists():
        pytest.skip(f"no environment beside {COMMAND}")
    file = tmp_path / "here.json"
    done = run("machine", "measure", "-o", file, "--name", "here", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["name"] == "here"
    shown = answer("machine", "show", file)
    assert shown["out"]["bytes_per_s"] > 0
    assert shown["in"]["bytes_per_s"] > 0


# --- bound ------------------------------------------------------------------------------------------


def test_bound_of_a_chain(chain: Path) -> None:
    fields = answer("bound", chain, "--machine", "unit", "--device", "100%")
    assert fields["peak_program_order"] == CHAIN_PEAK
    assert fields["floor"] == CHAIN_FLOOR
    assert fields["floor_proved"] is True
    assert fields["at"]["name"] == "b3"
    assert fields["compute_ns"] == CHAIN_COMPUTE
    assert fields["bound_ns"] == CHAIN_COMPUTE
    assert fields["budget"]["device"] == CHAIN_PEAK


def test_bound_counts_what_must_cross_the_link(two: Path) -> None:
    fields = answer("bound", two, "--machine", "unit", "--device", "100")
    bounds = {b["name"]: b for b in fields["bounds"]}
    assert bounds["compute"] == {"name": "compute", "holds_for": "any order", "ns": 20}
    assert bounds["link"] == {"name": "link", "holds_for": "any order", "ns": 100}
    assert {b["holds_for"] for b in fields["bounds"]} <= {"any order", "this order", "no recompute"}
    assert fields["bound_ns"] == 100


def test_floor_is_not_proved_where_nothing_can_be_moved(two: Path) -> None:
    fields = answer("bound", two, "--machine", "unit", "--device", "200", "--host", "0")
    assert fields["floor_proved"] is False


def test_bound_below_the_floor(chain: Path) -> None:
    fields = answer("bound", chain, "--machine", "unit", "--device", CHAIN_FLOOR - 1, code=1)
    assert fields["error"]["kind"] == "infeasible"
    assert fields["error"]["floor"] == CHAIN_FLOOR
    assert fields["error"]["at"]["name"] == "b3"


# --- plan, check, simulate --------------------------------------------------------------------------


def test_a_step_that_fits_takes_its_ops_alone(chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    fields = answer("plan", chain, "--machine", "unit", "--device", "100%", "-o", plan)
    assert fields["planner"] == "outsize"
    assert fields["feasible"] is True
    assert fields["step_ns"] == fields["compute_ns"] == fields["bound_ns"] == CHAIN_COMPUTE
    assert fields["recompute_ns"] == fields["stall_ns"] == 0
    assert fields["gap"] == fields["ideal"] == 1.0
    assert fields["peak"]["device"] <= CHAIN_PEAK
    assert fields["moved"] == {"out": 0, "in": 0, "write": 0, "read": 0}
    assert fields["history"][-1][1] == CHAIN_COMPUTE
    assert fields["first_plan_seconds"] <= fields["seconds"]
    assert answer("check", chain, plan, "--machine", "unit")["legal"] is True


def test_a_tight_plan_is_legal_and_takes_what_was_said(chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    fields = answer("plan", chain, "--machine", "unit", "--device", "500", "--work", 50, "-o", plan)
    assert fields["peak"]["device"] <= 500
    assert fields["step_ns"] >= fields["bound_ns"] >= CHAIN_COMPUTE
    total = fields["compute_ns"] + fields["recompute_ns"] + fields["stall_ns"]
    assert fields["step_ns"] == total
    checked = answer("check", chain, plan, "--machine", "unit", "--device", "500")
    assert checked == {**checked, "legal": True, "violation": None}
    simulated = answer("simulate", chain, plan, "--machine", "unit")
    assert simulated["step_ns"] == fields["step_ns"]
    assert simulated["stall_ns"] == fields["stall_ns"]
    assert simulated["moved"] == fields["moved"]
    assert simulated["peak"] == fields["peak"]
    assert set(simulated["busy_ns"]) == {"compute", "out", "in", "write", "read"}
    reference = answer("simulate", chain, plan, "--machine", "unit", "--reference")
    assert reference == simulated


def test_the_same_work_gives_the_same_plan_at_any_thread_count(chain: Path, tmp_path: Path) -> None:
    texts = []
    for threads in (1, 3):
        plan = tmp_path / f"plan{threads}.json"
        words = ["--device", "500", "--work", 40, "--seed", 7, "--threads", threads, "-o", plan]
        answer("plan", chain, "--machine", "unit", *words)
        texts.append(plan.read_bytes())
    assert texts[0] == texts[1]


def test_a_plan_that_does_not_fit_is_not_legal(chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    peak = answer("plan", chain, "--machine", "unit", "--device", "100%", "-o", plan)["peak"][
        "device"
    ]
    words = ("check", chain, plan, "--machine", "unit", "--device", peak - 1)
    fields = answer(*words, code=1)
    assert fields["legal"] is False
    assert fields["violation"]["kind"] == "budget"
    assert fields["violation"]["where"]
    assert fields["violation"]["witness"]
    assert fields["error"]["kind"] == "illegal"
    assert run(*words).stderr == f"outsize: {fields['error']['message']}\n"


def test_below_the_floor_says_what_sets_it(chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    words = ("plan", chain, "--machine", "unit", "-o", plan)
    fields = answer(*words, "--device", CHAIN_FLOOR - 1, code=1)
    assert fields["feasible"] is False
    assert fields["floor"] == CHAIN_FLOOR
    error = fields["error"]
    assert error["kind"] == "infeasible"
    assert error["floor"] == CHAIN_FLOOR
    assert error["at"]["op"] == 4
    assert error["at"]["name"] == "b3"
    assert {"module", "line"} <= set(error["at"])
    assert fields["least_budget"] == error["least_budget"] >= CHAIN_FLOOR
    assert not plan.exists()
    at_least = answer(*words, "--device", fields["least_budget"])
    assert at_least["feasible"] is True


def test_where_the_floor_is_set_is_named_by_module_and_line(chain: Path, tmp_path: Path) -> None:
    form = json.loads(chain.read_text())
    form["ops"][4]["site"] = {
        "module": "layer.3",
        "file": "train.py",
        "line": 12,
        "phase": "backward",
    }
    graph = tmp_path / "sited.json"
    graph.write_text(json.dumps(form))
    error = answer("plan", graph, "--machine", "unit", "--device", "100", code=1)["error"]
    assert error["at"] == {**error["at"], "module": "layer.3", "file": "train.py", "line": 12}
    assert "layer.3" in error["message"]
    assert "train.py:12" in error["message"]


def test_keep_says_the_least_budget_that_it_needs(chain: Path) -> None:
    words = ("plan", chain, "--machine", "unit", "--planner", "keep")
    least = answer(*words, "--device", "500", code=1)["least_budget"]
    assert least >= CHAIN_PEAK
    assert answer(*words, "--device", least)["step_ns"] == CHAIN_COMPUTE


def test_border_takes_homes_from_a_plan(two: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    words = ("plan", two, "--machine", "unit", "--work", 20)
    answer(*words, "--device", "100", "-o", first)
    answer(*words, "--device", "200", "--border", first, "-o", second)
    homes = [
        sorted(
            (r["storage"], r["tier"], r["address"])
            for item in form["entry"]
            if item.get("home")
            for r in [form["residencies"][item["residency"]]]
        )
        for form in (json.loads(file.read_text()) for file in (first, second))
    ]
    assert len(homes[0]) == 2
    assert homes[0] == homes[1]


def test_allow_none_moves_and_reruns_nothing(chain: Path) -> None:
    words = ("plan", chain, "--machine", "unit", "--allow", "none")
    fields = answer(*words, "--device", "100%")
    assert fields["moved"]["out"] == fields["reruns"] == 0
    answer(*words, "--device", "460", code=1)


def test_plan_of_another_graph(chain: Path, two: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    answer("plan", chain, "--machine", "unit", "--device", "100%", "-o", plan)
    fields = answer("check", two, plan, "--machine", "unit", code=1)
    assert fields["legal"] is False
    assert fields["violation"]["kind"] == "malformed"
    assert answer("simulate", two, plan, "--machine", "unit", code=1)["error"]["kind"] == "illegal"


def test_interrupt_gives_the_best_so_far(long_chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    words = ["plan", long_chain, "--machine", "unit", "--device", "40%", "--seconds", "200"]
    process = subprocess.Popen(
        [str(COMMAND), *map(str, words), "-o", str(plan), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Until it catches SIGINT.
    status = Path(f"/proc/{process.pid}/status")
    for _ in range(3000):
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) & (1 << (signal.SIGINT - 1)):
            break
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, out + err
    fields = json.loads(out)
    assert fields["interrupted"] is True
    assert fields["feasible"] is True
    assert answer("check", long_chain, plan, "--machine", "unit")["legal"] is True


# --- compare, sweep, explain ------------------------------------------------------------------------


def test_compare_has_a_row_per_planner(chain: Path) -> None:
    words = ("compare", chain, "--machine", "unit", "--work", 20, "--planners", "keep,outsize")
    rows = answer(*words, "--device", "500")["rows"]
    assert [row["planner"] for row in rows] == ["keep", "outsize"]
    assert rows[0]["feasible"] is False
    assert rows[0]["least_budget"] >= CHAIN_PEAK
    assert rows[1]["feasible"] is True
    plan = answer("plan", chain, "--machine", "unit", "--work", 20, "--device", "500")
    for key in ("step_ns", "peak", "moved", "bound_ns", "work"):
        assert rows[1][key] == plan[key]
    assert "did you mean 'keep'" in refusal(*words[:-1], "kep", "--device", "500")
    error = answer(*words, "--device", "1", code=1)["error"]
    assert error["floor"] == CHAIN_FLOOR


def test_sweep_is_never_slower_with_more_memory(chain: Path) -> None:
    words = ("sweep", chain, "--machine", "unit", "--work", 10)
    rows = answer(*words, "--device", f"{CHAIN_FLOOR - 50}:{CHAIN_PEAK + 50}:6")["rows"]
    assert [row["device"] for row in rows] == [400 + i * 204 // 5 for i in range(6)]
    assert rows[0]["feasible"] is False
    feasible = [row for row in rows if row["feasible"]]
    assert feasible == rows[len(rows) - len(feasible) :]
    times = [row["step_ns"] for row in feasible]
    assert times == sorted(times, reverse=True)
    assert times[-1] == CHAIN_COMPUTE
    assert all(row["step_ns"] >= row["bound_ns"] for row in feasible)
    assert feasible[-1]["ideal"] == 1.0
    for wrong in ("500", "500:600", "500:600:0", "500:600:x", "600:500:2", "::3"):
        refusal(*words, "--device", wrong)


def test_explain_names_the_peak_its_holders_and_the_ways_out(chain: Path) -> None:
    fields = answer("explain", chain, "--machine", "unit", "--device", "500", "--work", 20)
    assert fields["peak"] == CHAIN_PEAK
    assert fields["floor"] == CHAIN_FLOOR
    assert fields["at"]["name"] == "b3"
    assert [h["bytes"] for h in fields["holders"]] == [100] * 5 + [50, 4]
    assert {h["name"] for h in fields["holders"] if h["name"]} == {"w"}
    ways = {way["way"]: way for way in fields["ways_out"]}
    assert "swap" in ways
    saved = [way["saves_bytes"] for way in fields["ways_out"]]
    assert saved == sorted(saved, reverse=True)
    assert ways["swap"]["saves_bytes"] >= CHAIN_PEAK - 500
    assert ways["swap"]["step_ns"] >= CHAIN_COMPUTE


def test_explain_below_the_floor_looks_at_the_op_that_sets_it(chain: Path) -> None:
    fields = answer("explain", chain, "--machine", "unit", "--device", "100", "--work", 5)
    assert fields["sets"] == "floor"
    assert sum(h["bytes"] for h in fields["holders"]) == CHAIN_FLOOR
    assert not any(way["fits"] for way in fields["ways_out"])


# --- pack -------------------------------------------------------------------------------------------

BUFFERS = "id,lower,upper,size\nb0,0,2,4\nb1,1,3,4\nb2,2,4,4\n"


def test_pack_by_hand(tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(BUFFERS)
    fields = answer("pack", source, "-o", out)
    assert fields["buffers"] == 3
    assert fields["lower_bound"] == fields["height"] == 8
    assert fields["waste"] == 0
    assert fields["optimal"] is True
    assert fields["proved_infeasible"] is False
    lines = [line.split(",") for line in out.read_text().splitlines()]
    offsets = {line[0]: int(line[lines[0].index("offset")]) for line in lines[1:]}
    assert offsets["b0"] == offsets["b2"]
    assert abs(offsets["b1"] - offsets["b0"]) == 4


def test_pack_that_can_not_fit(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    fields = answer("pack", "-", "--capacity", "7", "-o", out, code=1, stdin=BUFFERS)
    assert fields["proved_infeasible"] is True
    assert fields["fits"] is False
    assert not out.exists()


def test_pack_names_line_and_column() -> None:
    message = refusal("pack", "-", stdin="id,lower,upper,size\nb0,0,2,-4\n")
    assert "line 2" in message
    assert "size" in message
    assert "did you mean 'search'" in refusal("pack", "-", "--method", "serch", stdin=BUFFERS)


# --- bad use and bad input --------------------------------------------------------------------------


def test_missing_file(chain: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    for words in (
        ("plan", absent, "--machine", "unit", "--device", "1"),
        ("check", chain, absent, "--machine", "unit"),
        ("import", "op-trace", absent, "-o", tmp_path / "g.json"),
        ("pack", absent),
    ):
        message = refusal(*words)
        assert str(absent) in message
        assert "No such file" in message


def test_not_json_names_line_and_column(tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text('{"format": "outsize-graph",\n "version": 1,,}')
    message = refusal("bound", graph, "--machine", "unit", "--device", "1")
    assert str(graph) in message
    assert "line 2" in message
    assert "column" in message


def test_wrong_format_and_unknown_fields_are_named(chain: Path, tmp_path: Path) -> None:
    graph = tmp_path / "other.json"
    form = json.loads(chain.read_text())
    form["ops"][2]["raeds"] = []
    graph.write_text(json.dumps(form))
    message = refusal("bound", graph, "--machine", "unit", "--device", "1")
    assert "ops[2]" in message
    assert "'raeds'" in message
    assert "did you mean 'reads'" in message
    message = refusal("check", chain, chain, "--machine", "unit")
    assert "outsize-plan" in message


@pytest.mark.parametrize("ns", ["NaN", "-1", "1e400", '"10"', "1.5"])
def test_times_that_are_no_times(tmp_path: Path, ns: str) -> None:
    source = tmp_path / "trace.json"
    source.write_text(json.dumps(TWO).replace('"ns": 10', f'"ns": {ns}', 1))
    refusal("import", "op-trace", source, "-o", tmp_path / "graph.json")
    assert not (tmp_path / "graph.json").exists()


def test_graph_without_a_profile_says_what_to_do(chain: Path, tmp_path: Path) -> None:
    form = json.loads(chain.read_text())
    del form["profile"]
    graph = tmp_path / "bare.json"
    graph.write_text(json.dumps(form))
    message = refusal("plan", graph, "--machine", "unit", "--device", "1000")
    assert "no profile" in message
    assert "outsize import op-trace" in message


@pytest.mark.parametrize("budget", ["6GiBs", "lots", "-5", "1.5", "9" * 30, "x%"])
def test_budgets_that_can_not_be_read(chain: Path, budget: str) -> None:
    for words in ([f"--device={budget}"], ["--device", budget]):
        message = refusal("plan", chain, "--machine", "unit", *words)
        assert "--device" in message
        assert budget in message


def test_budgets_by_unit_and_share(chain: Path) -> None:
    for text, bytes_ in (
        ("1KiB", 1024),
        ("1kB", 1000),
        ("1048576", 1048576),
        ("200%", 2 * CHAIN_PEAK),
    ):
        fields = answer("bound", chain, "--machine", "unit", "--device", text)
        assert fields["budget"]["device"] == bytes_


def test_budgets_left_out_come_from_the_machine(chain: Path) -> None:
    fields = answer("bound", chain, "--machine", "v100-16gb-pcie3")
    assert fields["budget"] == {"device": 16 * 10**9, "host": 128 << 30, "disk": 0}
    assert "--device" in refusal("bound", chain, "--machine", "unit")
    assert "--machine" in refusal("bound", chain, "--device", "1000")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seconds", "-1"),
        ("--seconds", "nan"),
        ("--seconds", "soon"),
        ("--work", "-1"),
        ("--work", "1e3"),
        ("--seed", "-1"),
        ("--threads", "0"),
        ("--allow", "swop"),
    ],
)
def test_search_options_out_of_range(chain: Path, option: str, value: str) -> None:
    message = refusal("plan", chain, "--machine", "unit", "--device", "1000", f"{option}={value}")
    assert option in message


def test_unknown_words_name_the_nearest(chain: Path) -> None:
    assert "did you mean 'plan'" in refusal("paln", chain)
    assert "did you mean 'list'" in refusal("machine", "lst")
    assert "did you mean '--device'" in refusal(
        "plan", chain, "--machine", "unit", "--devise", "5GB"
    )
    assert "did you mean 'outsize'" in refusal(
        "plan", chain, "--machine", "unit", "--device", "1000", "--planner", "outsise"
    )
    assert "too many" in refusal("bound", chain, "more", "--machine", "unit", "--device", "1000")


def test_no_words_prints_help_and_fails() -> None:
    done = run()
    assert done.returncode == 2
    assert "plan" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "import",
        "machine",
        "machine list",
        "machine show",
        "machine measure",
        "bound",
        "plan",
        "check",
    ]
    + ["simulate", "compare", "sweep", "explain", "pack"],
)
def test_help(words: str) -> None:
    done = run(*words.split(), "--help")
    assert done.returncode == 0
    assert words.split()[-1] in done.stdout


def test_version() -> None:
    assert run("--version").stdout.strip() == answer("machine", "list")["outsize"]


def test_unwritable_outputs_leave_nothing_behind(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for output in (tmp_path / "absent" / "plan.json", tmp_path / "folder"):
        before = sorted(tmp_path.rglob("*"))
        message = refusal("plan", chain, "--machine", "unit", "--device", "100%", "-o", output)
        assert str(output) in message
        assert sorted(tmp_path.rglob("*")) == before


def test_a_failed_command_leaves_the_old_file(chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("old")
    answer("plan", chain, "--machine", "unit", "--device", "1", "-o", plan, code=1)
    assert plan.read_text() == "old"
    assert sorted(f.name for f in tmp_path.iterdir() if "draft" in f.name) == []


def test_tables_for_people_are_not_json(chain: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = run("plan", chain, "--machine", "unit", "--device", "100%", "-o", plan)
    assert made.returncode == 0
    assert made.stderr == ""
    assert "125 ns" in made.stdout
    for words in (
        ("machine", "list"),
        ("machine", "show", "unit"),
        ("bound", chain, "--machine", "unit", "--device", "100%"),
        ("check", chain, plan, "--machine", "unit"),
        ("simulate", chain, plan, "--machine", "unit"),
        ("compare", chain, "--machine", "unit", "--device", "500", "--work", "5"),
        ("sweep", chain, "--machine", "unit", "--device", "460:560:2", "--work", "5"),
        ("explain", chain, "--machine", "unit", "--device", "500", "--work", "5"),
    ):
        done = run(*words)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert len(done.stdout.splitlines()) >= 1
        with pytest.raises(json.JSONDecodeError):
            json.loads(done.stdout)


# --- public data ------------------------------------------------------------------------------------


def data(*parts: str) -> Path:
    if DATA is None:
        pytest.skip("the folder shared/data with public instances is not there")
    file = DATA.joinpath(*parts)
    if not file.exists():
        pytest.skip(f"no {file}")
    return file


def test_a_public_trace_from_end_to_end(tmp_path: Path) -> None:
    source = data("trace", "checkmate-VGG16_256.json")
    form = json.loads(source.read_text())
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    fields = answer("import", "op-trace", source, "-o", graph)
    assert fields["ops"] == len(form["ops"])
    assert fields["compute_ns"] == sum(op["ns"] for op in form["ops"])
    words = ("--machine", "a100-40gb-pcie4", "--device", "85%")
    bound = answer("bound", graph, *words)
    made = answer("plan", graph, *words, "--work", 30, "-o", plan)
    assert (
        made["peak"]["device"]
        <= bound["budget"]["device"]
        == bound["peak_program_order"] * 85 // 100
    )
    assert made["step_ns"] >= bound["bound_ns"]
    assert answer("check", graph, plan, *words)["legal"] is True
    simulated = answer("simulate", graph, plan, *words[:2])
    assert simulated["step_ns"] == made["step_ns"]


def test_a_public_packing(tmp_path: Path) -> None:
    source = data("pack", "input.12.csv")
    fields = answer("pack", source, "--capacity", "12", "-o", tmp_path / "out.csv")
    assert fields["height"] == fields["lower_bound"] == 12
    assert fields["fits"] is True
    assert answer("pack", source, "--capacity", "11", code=1)["proved_infeasible"] is True
