"""The `outsize` command from outside: what it prints with --json and which files it writes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_steps import (
    CHAIN,
    CHAIN_COMPUTE,
    CHAIN_FLOOR,
    CHAIN_PEAK,
    COMMAND,
    DATA,
    TWO,
    Fields,
    answer,
    imported,
    needs_command,
    refusal,
    run,
    trace,
)

pytestmark = needs_command


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
    assert shown["both_bytes_per_s"] > 0
    for beside in ("compute_permille_beside_copy", "copy_permille_beside_compute"):
        assert 0 < shown[beside] <= 1000, beside


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
    assert rows[0]["step_ns"] is None
    assert set(rows[1]) - set(rows[0]) <= {"reruns", "copies", "history"}
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
    assert rows[0]["step_ns"] is rows[0]["ideal"] is None
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


def test_pack_takes_the_storages_of_a_graph(tmp_path: Path) -> None:
    # a (input, 100) -> b 64 -> c 36 -> d (output, 10): most live at once a + b; b and c: 100; a and b meet in op 0
    trace, graph, out = tmp_path / "trace.json", tmp_path / "graph.json", tmp_path / "out.csv"
    storages = [
        ("a", 100, "input"),
        ("b", 64, "activation"),
        ("c", 36, "activation"),
        ("d", 10, "output"),
    ]
    ops = [("a", "b"), ("b", "c"), ("c", "d")]
    fields = {
        "format": "op-trace",
        "version": 1,
        "title": "t",
        "source": "s",
        "storages": [{"id": i, "bytes": n, "role": r} for i, n, r in storages],
        "ops": [{"name": "f", "ns": 1, "reads": [x], "makes": [y], "mutates": []} for x, y in ops],
    }
    trace.write_text(json.dumps(fields))
    answer("import", "op-trace", trace, "-o", graph)
    fields = answer("pack", graph, "-o", out)
    assert fields["buffers"] == 4
    assert fields["lower_bound"] == fields["height"] == 164
    lives = [line.split(",")[1:4] for line in out.read_text().splitlines()[1:]]
    assert lives == [["0", "1", "100"], ["0", "2", "64"], ["1", "3", "36"], ["2", "3", "10"]]


def test_a_packing_file_becomes_a_graph_with_the_same_lives(tmp_path: Path) -> None:
    source, graph, out = tmp_path / "in.csv", tmp_path / "graph.json", tmp_path / "out.csv"
    source.write_text(BUFFERS)
    fields = answer("import", "minimalloc", source, "-o", graph)
    assert (fields["ops"], fields["storages"], fields["compute_ns"]) == (4, 3, 4)
    assert answer("pack", graph, "-o", out)["height"] == 8
    lives = [line.split(",")[1:4] for line in out.read_text().splitlines()[1:]]
    assert lives == [["0", "2", "4"], ["1", "3", "4"], ["2", "4", "4"]]
    fixed = "id,lower,upper,size,offset\nb0,0,2,4,8\n"
    assert "'b0'" in refusal("import", "minimalloc", "-", "-o", graph, stdin=fixed)


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
