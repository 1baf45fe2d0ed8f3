"""The bench's parts: workers, digests, the limiting allocator, text, the picture, command lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from cli_steps import needs_command
from hypothesis import given
from hypothesis import strategies as st

from outsize.bench import __main__ as bench_main
from outsize.bench import atp, demo, packing, planners, planning, sharing, train
from outsize.bench.commands import BAD_USE, write_file
from outsize.bench.comparison import BUILD_FOLDER, Comparison, Settings, environment
from outsize.bench.digests import digest_state, digest_tensor, first_difference
from outsize.bench.limits import build_allocator
from outsize.bench.models import LARGE_MODELS, UNet, from_file, language_model, resnet50_model
from outsize.bench.picture import Limit, Line, chart, page, section, thin, ticks
from outsize.bench.process import Worker, WorkerError
from outsize.bench.report import forecast_checks
from outsize.bench.text import tokens_file

# ---- Workers ----------------------------------------------------------------------------------

WORKER = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("process", sys.argv[1])
process = importlib.util.module_from_spec(spec)
spec.loader.exec_module(process)
held = []

def hold(fields):
    held.append(b"x" * fields["bytes"])
    time.sleep(fields["seconds"])
    return {"held": len(held)}

def talk(fields):
    channel.note("first")
    channel.note("second")
    print("libraries print to stdout")
    os.system("echo and so do their children")
    return {"said": fields["text"]}

channel = process.Channel()
channel.serve({"hold": hold, "talk": talk, "die": lambda _: os._exit(3), "fail": lambda f: f["gone"]})
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    from outsize.bench import process

    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, str(script), process.__file__]
    with Worker("worker", command, environment(1), tmp_path / "worker.log") as started:
        yield started


def test_prints_do_not_disturb_answers(worker: Worker) -> None:
    notes: list[str] = []
    worker.listen = notes.append
    assert worker.request("talk", text="ü\n") == {"said": "ü\n"}
    assert notes == ["first", "second"]
    assert worker.request("hold", bytes=1, seconds=0) == {"held": 1}


def test_memory_is_sampled_while_a_request_runs(worker: Worker) -> None:
    before = worker.memory()["anonymous"]
    worker.request("hold", sample=True, bytes=50_000_000, seconds=0.5)
    assert max(sample["anonymous"] for sample in worker.samples) - before >= 50_000_000


def test_an_error_names_the_request_and_the_worker_goes_on(worker: Worker) -> None:
    with pytest.raises(WorkerError, match="worker, fail: KeyError: 'gone'") as caught:
        worker.request("fail")
    assert caught.value.kinds[:2] == ["KeyError", "LookupError"]
    with pytest.raises(WorkerError, match="no request 'unheard'; known: hold, talk, die, fail"):
        worker.request("unheard")
    assert worker.request("hold", bytes=1, seconds=0) == {"held": 1}


def test_death_and_silence_are_errors(worker: Worker) -> None:
    with pytest.raises(WorkerError, match="died: exit status 3") as caught:
        worker.request("die")
    assert caught.value.doing == "die"


def test_silence_is_an_error(worker: Worker) -> None:
    with pytest.raises(WorkerError, match="timeout: no answer in"):
        worker.request("hold", timeout_s=0.3, bytes=1, seconds=60)


# ---- Digests ----------------------------------------------------------------------------------


def test_a_digest_sees_every_bit_and_no_stride() -> None:
    values = torch.tensor([[0.0, 1.0], [2.0, torch.nan]])
    assert digest_tensor(values) == digest_tensor(values.t().contiguous().t())
    assert digest_tensor(values) != digest_tensor(values.reshape(4))
    assert digest_tensor(torch.tensor([0.0])) != digest_tensor(torch.tensor([-0.0]))
    assert digest_tensor(torch.zeros(2)) != digest_tensor(torch.zeros(2, dtype=torch.int32))
    for dtype in (torch.bfloat16, torch.bool, torch.complex64, torch.int64):
        one = torch.ones(3, dtype=dtype)
        assert digest_tensor(one) == digest_tensor(one.clone()) != digest_tensor(one[:2])


def test_the_state_has_every_part_and_differences_are_named() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    before = digest_state(model, optimizer)
    wanted = [
        f"{kind} {n}.{end}"
        for n in "01"
        for kind in ("parameter", "gradient")
        for end in ("weight", "bias")
    ]
    wanted += [
        f"buffer 1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    ]
    wanted += [
        f"optimizer momentum_buffer of {n}.{end}" for n in "01" for end in ("weight", "bias")
    ]
    wanted += ["optimizer settings of group 0"]
    wanted += [f"generator of {name}" for name in ("torch", "Python", "NumPy")]
    assert sorted(before) == sorted(wanted)
    assert first_difference(before, digest_state(model, optimizer)) is None

    torch.rand(1)
    assert first_difference(before, digest_state(model, optimizer)) == "generator of torch differs"
    optimizer.param_groups[0]["lr"] = 0.2
    assert first_difference(before, digest_state(model, optimizer)) == (
        "optimizer settings of group 0 differs"
    )
    optimizer.zero_grad()
    difference = first_difference(before, digest_state(model, optimizer))
    assert difference == "gradient 0.weight is missing"
    assert first_difference({}, {"a": ""}) == "a is only in the second"


# ---- The allocator ----------------------------------------------------------------------------

ALLOCATOR = """
import sys, threading
from pathlib import Path
from outsize.bench.limits import CountingAllocator
import torch
early = torch.ones(1000)
allocator = CountingAllocator(Path(sys.argv[1]))
assert allocator.live_bytes == 0
del early                                    # made by the other allocator, freed by this one
allocator.start_timeline()
a = torch.empty(1000, dtype=torch.uint8)
b = torch.empty(500, dtype=torch.uint8)
del a
assert (allocator.live_bytes, allocator.peak_bytes) == (500, 1500)
assert [size for _, size in allocator.stop_timeline()] == [0, 1000, 1500, 500]
allocator.set_limit(1500)
c = torch.empty(1000, dtype=torch.uint8)     # to the last byte
try:
    torch.empty(1, dtype=torch.uint8)
except RuntimeError as error:
    print(error)
assert (allocator.live_bytes, allocator.peak_bytes) == (1500, 1500)
allocator.set_limit(0)

def work():
    for _ in range(300):
        torch.ones(64).add(1)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert allocator.live_bytes == 1500
"""


def test_the_allocator_counts_and_limits_to_the_byte() -> None:
    library = build_allocator(BUILD_FOLDER / "bench")
    assert build_allocator(BUILD_FOLDER / "bench") == library
    command = [sys.executable, "-c", ALLOCATOR, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(1))
    assert done.returncode == 0, done.stderr
    assert (
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes" in done.stdout
    )


# ---- What a comparison adds up ----------------------------------------------------------------


def test_memory_counts_from_each_capture_and_medians_from_the_third_step() -> None:
    comparison = Comparison(Settings("resnet50", 4, budget_of=lambda peak: peak))
    comparison.captures_prepared = 1
    comparison.planned.built = {"memory": {"anonymous": 90, "shared": 10}}
    # The second step has a plan of its own, made between the two.
    comparison.after_plan = {0: {"anonymous": 100}, 1: {"anonymous": 250}}
    for captures, end, within, shared in (
        (1, 120, 150, 30),
        (2, 300, 500, 35),
        (2, 310, 330, 40),
        (2, 290, 305, 35),
    ):
        memory = {"anonymous": end, "shared": 35}
        comparison.planned.steps.append({"captures": captures, "memory": memory})
        comparison.samples.append([{"anonymous": within, "shared": shared}])
    assert comparison.anonymous_growth() == 500 - 250  # in the second step, that makes the most
    assert comparison.shared_growth() == 40 - 10
    comparison.samples[0].append({"anonymous": 400, "shared": 0})
    assert comparison.anonymous_growth() == 400 - 100  # nor is the first step's forgotten

    for run, times in (
        (comparison.unplanned, (90, 80, 3, 5)),
        (comparison.control, (90, 80, 4, 6)),
        (comparison.planned, (90, 80, 6, 10)),
    ):
        captures = [1, 2, 2, 2]
        run.steps = [{"step_s": s, "captures": n} for s, n in zip(times, captures, strict=True)]
    assert comparison.eager_step_s == 4  # the tuned run's median, the faster one
    assert comparison.planned_step_s == 8 and comparison.ratio == 2
    # The first plan is of the first step alone; where it is of all, of those that count.
    assert comparison.first_plan_step_s == 90
    for step in comparison.planned.steps:
        step["captures"] = 1
    assert comparison.first_plan_step_s == 8


def test_a_ratio_fails_where_it_must_hold_and_a_forecast_is_only_said() -> None:
    def checks(ratio: float, off: float, must: bool) -> dict[str, tuple[bool, bool]]:
        comparison = Comparison(
            Settings("resnet50", 4, budget_of=lambda peak: peak, ratio_must_hold=must)
        )
        comparison.captures_prepared = 1
        comparison.first_forecast = {"step_s": 1.0}
        forecast = {"step_s": 1.0, "peak_bytes": 1}
        for run in (comparison.unplanned, comparison.control):
            run.steps = [{"step_s": off / ratio}] * 4
        for captures in (1, 2, 2, 2):
            record = {"peak_bytes": 1, "forecast": forecast}
            comparison.planned.steps.append({"step_s": off, "captures": captures, "record": record})
        return {check.name: (check.ok, check.must) for check in forecast_checks(comparison)}

    times = ("time forecast before step 1", "time forecast, steady step")
    for ratio, off, must, ok in (
        (1.19, 1.09, True, True),
        (1.21, 0.89, True, False),
        (1.21, 1.11, False, False),
    ):
        found = checks(ratio, off, must)
        assert found["planned / unplanned"] == (ok, must)
        assert [found[name] for name in times] == [(ok, False)] * 2
        assert found["forecast of the peak"] == (True, True)


# ---- Text and models --------------------------------------------------------------------------


def test_text_is_tokens_of_the_standard_library_and_is_made_once(tmp_path: Path) -> None:
    path = tokens_file(tmp_path, limit_bytes=100_000, vocabulary=400)
    tokens = numpy.fromfile(path, dtype=numpy.uint16)
    assert len(tokens) > 20_000 and 256 < tokens.max() < 400
    stamp = path.stat().st_mtime_ns
    assert tokens_file(tmp_path, limit_bytes=100_000, vocabulary=400) == path
    assert path.stat().st_mtime_ns == stamp
    assert tokens_file(tmp_path, limit_bytes=50_000, vocabulary=400) != path

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(next(tmp_path.glob("tokenizer-*.json"))))
    sample = "def f(x):\n    return x  # ünïcode\n"
    assert tokenizer.decode(tokenizer.encode(sample).ids) == sample


def test_models_have_their_published_sizes() -> None:
    with torch.device("meta"):
        resnet, unet = resnet50_model(), UNet()
        assert sum(p.numel() for p in resnet.parameters()) == 25_557_032  # ResNet-50's
        assert sum(p.numel() for p in unet.parameters()) == pytest.approx(15.2e6, rel=0.01)
        assert resnet(torch.empty(2, 3, 128, 128)).shape == (2, 1000)
        assert unet(torch.empty(1, 3, 64, 64)).shape == (1, 2, 64, 64)


@pytest.mark.parametrize(
    ("name", "parameters"), [("gpt2-124m", 124_439_808), *LARGE_MODELS.items()]
)
def test_language_models_have_their_published_sizes(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = language_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_a_workload_file_must_return_what_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def short():\n    return 1\n")
    with pytest.raises(FileNotFoundError, match="no file"):
        from_file(f"{tmp_path}/none.py:short")
    with pytest.raises(ValueError, match="mine.py has no function other"):
        from_file(f"{file}:other")
    with pytest.raises(
        ValueError, match=r"wanted \(model, optimizer, train_step, make_batch\), had int"
    ):
        from_file(f"{file}:short")


# ---- The picture ------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=300),
    st.integers(1, 20),
)
def test_thinning_keeps_ends_and_peaks(points: list[tuple[int, int]], slots: int) -> None:
    points.sort(key=lambda point: point[0])
    kept = thin(points, slots)
    assert len(kept) <= 4 * slots
    assert kept[0] == points[0] and kept[-1] == points[-1]
    for extreme in (min, max):
        assert extreme(y for _, y in kept) == extreme(y for _, y in points)
    remaining = iter(points)
    assert all(point in remaining for point in kept)  # in order, nothing made up


@given(st.floats(1e-6, 1e9))
def test_ticks_reach_the_highest_in_round_steps(highest: float) -> None:
    values = ticks(highest)
    assert values[0] == 0 and values[-1] >= highest * (1 - 1e-6) and 3 <= len(values) <= 8


class Balanced(HTMLParser):
    """Fails on tags that are not closed in order; notes what would be fetched."""

    void = {"meta"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    stairs = [(0.0, 1.0), (1.0, 4.0), (2.0, 0.0)]
    svg = chart(
        "c",
        [Line("a </script> <b>", stairs, "#111", filled=True)],
        "time, s",
        "memory, GB",
        [Limit("budget 5 GB", 5.0)],
    )
    parser = Balanced()
    text = page("t & u", "lead", [("peak", "1 < 2")], [section("s", "x", svg)])
    parser.feed(text)
    parser.close()
    assert parser.open == [] and parser.fetched == []
    assert "http://" not in text and "https://" not in text
    assert "t &amp; u" in text and "1 &lt; 2" in text and "a &lt;/script&gt;" in text
    assert "memory, GB" in text and "time, s" in text and "budget 5 GB" in text
    data = re.search(r'<script type="application/json">(.*?)</script>', text)
    assert data is not None
    assert json.loads(data.group(1))[0]["points"] == [list(point) for point in stairs]
    # 4 of 0..6 up: the axes end at a round number above the limit of 5.
    path = re.search(r'<path d="(M[^"]*)" fill="none"', svg)
    assert path is not None
    heights = [float(y) for y in re.findall(r"V([\d.]+)", path.group(1))]
    assert heights == [pytest.approx(14 + 260 * (1 - 4 / 6), abs=0.1), 274.0]


# ---- Command lines ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bench",
    [*(pytest.param(b, marks=needs_command) for b in (atp, packing, planners, planning)), sharing],
    ids=lambda bench: bench.__name__.rpartition(".")[2],
)
def test_an_unknown_case_is_bad_use(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--only", "no such case"])
    assert ended.value.code == BAD_USE
    assert "no case has 'no such case' in it" in capsys.readouterr().err


def test_files_are_written_whole_and_devices_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "rows.json"
    write_file(path, "one")
    write_file(path, "two")
    assert path.read_text() == "two" and list(path.parent.iterdir()) == [path]
    device = tmp_path / "null"
    device.symlink_to(os.devnull)
    write_file(device, "three")
    assert device.is_symlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--model", "resnet50", "--budget", "1GB", "--budgte", "1GB"],
            "unknown option --budgte; did you mean --budget?",
        ),
        (["--model", "resnet5", "--budget", "1GB"], "did you mean resnet50?"),
        (["--model", "resnet50", "--budget", "1XB"], "can't read '1XB'"),
        (
            ["--model", "resnet50", "--budget", "1GB", "--stesp=3"],
            "unknown option --stesp; did you mean --steps?",
        ),
        (["--model", "resnet50", "--budget", "1GB", "--tiers", "dsk"], "did you mean disk?"),
        (["--model", "resnet50", "--budget", "1GB", "--steps", "0"], "wanted at least 1, had 0"),
        (["--model", "resnet50", "--budget", "1GB", "--disk", "x"], "only with --tiers disk"),
        (
            ["--model", "resnet50", "--budget", "1GB", "--tiers", "disk", "--link", "unit"],
            "--link: only with --tiers host",
        ),
        (["--model", "resnet50", "--budget", "1GB", "--threads", "0"], "wanted at least 1, had 0"),
        (["--model", "resnet50", "--budget", "17/16"], "at most 1/1, had '17/16'"),
        (["--model", "resnet50", "--budget", "1/0"], "at most 1/1, had '1/0'"),
    ],
)
def test_bad_use_exits_2_and_says_what_was_meant(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        train.main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_budgets_are_shares_of_the_peak_to_the_byte() -> None:
    # In floating point a third of it would be rounded twice.
    peak = 3 * (2**53 + 1)
    assert train.budget_bytes("1/3", peak) == 2**53 + 1
    assert train.budget_bytes(" 1 / 16 ", 1_615) == 100
    assert train.budget_bytes("1/1", 7) == 7


def test_models_too_large_for_the_machine_are_refused_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enough = 2 * 16 * 1_557_611_200
    assert train.too_large("gpt2-xl", enough) is None
    assert train.too_large("resnet50", 0) is None
    monkeypatch.setattr(train, "available_host_bytes", lambda: enough - 1)
    with pytest.raises(SystemExit) as caught:
        train.main(["--model", "gpt2-xl", "--budget", "1/16"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "--model: gpt2-xl: its 2 plain runs hold 49.8 GB" in said and "smaller model" in said


def test_the_table_has_a_row_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {
        "model": "/somewhere/mine.py:tiny",
        "input": "8 x 512 tokens",
        "eager_peak_bytes": 4_000_000_000,
        "budget_bytes": 500_000_000,
        "measured_peak_bytes": 499_000_000,
        "bit_equal": True,
        "control_bit_equal": True,
        "eager_step_s": 5.0,
        "planned_step_s": 5.5,
        "ratio": 1.1,
        "predicted_step_s": 5.0,
        "bound_s": 4.95,
        "moved": {"out": 1_000_000_000, "in": 2_000_000_000, "write": 0, "read": 0},
        "recomputed_ops": 7,
    }
    file = tmp_path / "a.json"
    file.write_text(json.dumps(fields))
    assert bench_main.main(["table", str(file), str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[2] == lines[3]
    assert lines[2] == (
        "| mine.py:tiny | 8 x 512 tokens | 4,000.0 MB | 500.0 MB | 12.5% | 499.0 MB | equal | 5 | 5.5 |"
        " 1.1 | +10.0% | 90% | 3 GB | 7 |"
    )
    with pytest.raises(SystemExit) as caught:
        bench_main.main(["table", str(tmp_path / "none.json")])
    assert caught.value.code == 2 and "none.json" in capsys.readouterr().err


def test_unknown_benches_and_short_demos_are_bad_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main.main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        demo.main(["--steps", "2"])
    assert "wanted at least 3, had 2" in capsys.readouterr().err
