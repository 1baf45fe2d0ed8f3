"""The `outsize` command where it is used badly: exit codes, messages, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_steps import CHAIN, CHAIN_PEAK, TWO, answer, imported, needs_command, refusal, run

pytestmark = needs_command


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return imported(tmp_path, CHAIN)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return imported(tmp_path, TWO, "two.json")


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
        "generate",
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


def test_generate_names_the_model_that_was_meant(tmp_path: Path) -> None:
    graph = tmp_path / "g.json"
    assert "did you mean 'rnn-8-8k'" in refusal("generate", "rnn-8k", "--batch", 2, "-o", graph)
    assert "--batch" in refusal("generate", "rnn-8-8k", "-o", graph)
    fields = answer("generate", "wresnet-152-4", "--batch", 16, "-o", graph)
    assert fields["ops"] == 927
    assert graph.exists()
