"""Models of many kinds, three steps with default AdamW inside a part of their peak: bits equal, or refused by name.

`make test` runs a model of each kind at 60 % of its peak; `make test-long` runs all, and each once more at
5 % over its floor, and writes `docs/models.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from model_zoo import ZOO, Entry
from models_page import PAGE, Row, page
from step_parity import Log, check_budget, compare, train, train_least, train_share

import outsize

# Seconds that the planner may search: tests ask for plans that hold, not for the best.
SEARCH_S = 0.2
# Not planned: a shape or a branch depends on tensor data. Model -> what its refusal says.
REFUSED = {
    "llava": "memory that the op asks for depends on tensor data",
    "vilt": "shape of a result depends on tensor data",
    "switch": "shape of a result depends on tensor data",
    "wav2vec2_ctc": "shape of a result depends on tensor data",
    "recurrent_gemma": "recurrent_states: was assigned",
}
FAST = ["bert", "gpt2", "mixtral", "resnet", "swin", "lfm2", "graph_network", "gan_in_one_step"]


@pytest.fixture(autouse=True)
def _quiet_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.setattr(transformers.logging, "get_verbosity", lambda: 40)


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Collects what was measured; the page is written once every model has been."""
    collected: list[Row] = []
    yield collected
    if {row.name for row in collected} == set(ZOO):
        PAGE.write_text(page(collected), encoding="utf-8")


def _at_a_share(entry: Entry, wanted: Log) -> Log:
    """At 60 % of the peak, or the least that can be done."""
    log = train_share(entry.make, "60%", seconds=SEARCH_S)
    compare(wanted, log)
    check_budget(log, max(record.forecast.unplanned_peak_bytes for record in log.records))
    return log


@pytest.mark.parametrize("name", FAST)
def test_a_model_of_each_kind(name: str) -> None:
    wanted = train(ZOO[name].make)
    compare(wanted, train(ZOO[name].make))
    _at_a_share(ZOO[name], wanted)


@pytest.mark.parametrize("name", ["llava", "switch", "vilt", "wav2vec2_ctc"])
def test_refusals_name_what_is_in_the_way(name: str) -> None:
    with pytest.raises(outsize.CaptureError, match=REFUSED[name]):
        train(ZOO[name].make, budget="60%")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_model(name: str, rows: list[Row]) -> None:
    entry = ZOO[name]
    wanted = train(entry.make)
    compare(wanted, train(entry.make))
    try:
        log = _at_a_share(entry, wanted)
    except outsize.CaptureError as error:
        assert name in REFUSED, error
        rows.append(
            Row(name, entry.kind, refused=str(error).partition("site-packages/")[2] or str(error))
        )
        return
    assert name not in REFUSED, "it runs: take it off the list"
    last = log.records[-1].forecast
    floor = max(record.forecast.floor_bytes for record in log.records)
    tight = train_least(entry.make, floor * 105 // 100, seconds=SEARCH_S)
    compare(wanted, tight)
    check_budget(tight, tight.budget)
    rows.append(
        Row(
            name,
            entry.kind,
            peak_bytes=last.unplanned_peak_bytes,
            floor_bytes=last.floor_bytes,
            tightest_bytes=tight.budget,
        )
    )
