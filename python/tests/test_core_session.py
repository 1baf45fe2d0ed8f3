"""Steps through `outsize_core.Session`, bit for bit against eager PyTorch."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from core_steps import Run, Scalar, StepWriter, make_plan, measured, same_bits, view_bytes

import outsize_core

TIGHT = 22 << 10  # bytes of device memory: less than training_step() takes kept
LARGE = 1 << 16  # bytes from which a persistent storage is not kept for undoing


def training_step(width: int = 32, batch: int = 8, seed: int = 1):
    """Two linear layers, ReLU, mean-square loss, SGD with momentum in place, by hand."""
    torch.manual_seed(seed)
    step = StepWriter()
    entries = {
        "w1": torch.randn(width, width),
        "w2": torch.randn(width, width),
        "m1": torch.zeros(width, width),
        "m2": torch.zeros(width, width),
    }
    kept = {name: step.parameter(name, tensor) for name, tensor in entries.items()}
    x, t = torch.randn(batch, width), torch.randn(batch, width)
    lr = step.number("lr", 0.1)
    down = step.function("neg", -0.1, lr)
    w1, w2, m1, m2 = kept["w1"], kept["w2"], kept["m1"], kept["m2"]
    xs, ts = step.input(x), step.input(t)
    h = step.call("aten.mm.default", xs, w1, module="first")
    a = step.call("aten.relu.default", h)
    y = step.call("aten.mm.default", a, w2, module="second")
    d = step.call("aten.sub.Tensor", y, ts, 1)
    sq = step.call("aten.mul.Tensor", d, d)
    loss = step.call("aten.mean.default", sq, None)
    gw2 = step.call("aten.mm.default", a.t(), d)
    ga = step.call("aten.mm.default", d, w2.t())
    gh = step.call("aten.threshold_backward.default", ga, h, 0)
    gw1 = step.call("aten.mm.default", xs.t(), gh)
    for w, m, g in ((w1, m1, gw1), (w2, m2, gw2)):
        step.call("aten.mul_.Tensor", m, 0.9)
        step.call("aten.add_.Tensor", m, g, 1)
        step.call("aten.add_.Tensor", w, m, down)
    inputs = {step.storage_id(xs): x, step.storage_id(ts): t}
    return step, entries, kept, inputs, loss


def check_training(run: Run, step, kept, inputs, loss) -> dict:
    result = run.step(inputs, lr=0.1)
    raw = result["outputs"][step.storage_id(loss)]
    assert same_bits(view_bytes(raw, loss), loss)
    for name, tensor in kept.items():
        assert same_bits(run.tensors[name], tensor), name
    return result["report"]


def test_a_training_step_in_memory_has_eagers_bits():
    step, entries, kept, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    plan = make_plan(graph, profile, "keep", 1 << 20)
    run = Run(graph, profile, plan, entries)
    report = check_training(run, step, kept, inputs, loss)
    assert report["requests"] == sum(
        len(op.get("requests", [])) for op in json.loads(profile)["ops"]
    )
    assert report["arena_highest"] <= plan["planned"]["extent"]["device"]
    assert report["live_peak"]["device"] == plan["planned"]["peak"]["device"]
    assert len(report["rerun_ops"]) == report["moved_in"] == report["moved_out"] == 0


def test_ten_steps_have_eagers_bits():
    torch.manual_seed(0)
    step, entries, _, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    run = Run(graph, profile, make_plan(graph, profile, "keep", 1 << 20), entries)
    eager = {name: tensor.clone() for name, tensor in entries.items()}
    for k in range(10):
        x, t = torch.randn(8, 32), torch.randn(8, 32)
        rate = 0.1 / (k + 1)
        result = run.step(dict(zip(inputs, (x, t), strict=True)), lr=rate)
        h = x @ eager["w1"]
        a = h.relu()
        d = a @ eager["w2"] - t
        wanted = (d * d).mean()
        g2 = a.t() @ d
        g1 = x.t() @ torch.ops.aten.threshold_backward(d @ eager["w2"].t(), h, 0)
        for w, m, g in (("w1", "m1", g1), ("w2", "m2", g2)):
            eager[m].mul_(0.9).add_(g)
            eager[w].add_(eager[m], alpha=-rate)
        raw = result["outputs"][step.storage_id(loss)]
        assert same_bits(view_bytes(raw, wanted), wanted), k
        for name, tensor in eager.items():
            assert same_bits(run.tensors[name], tensor), (k, name)


@pytest.mark.parametrize("allow", [["swap"], ["swap", "recompute", "reorder"]])
@pytest.mark.parametrize("poison", [False, True])
def test_a_step_in_less_memory_has_eagers_bits(allow, poison):
    step, entries, kept, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    assert make_plan(graph, profile, "keep", 1 << 20)["planned"]["peak"]["device"] > TIGHT
    plan = make_plan(graph, profile, "outsize", TIGHT, allow=allow)
    run = Run(graph, profile, plan, entries)
    run.session.set_poison(poison)
    report = check_training(run, step, kept, inputs, loss)
    assert report["moved_in"] > 0
    assert report["arena_highest"] <= plan["budgets"]["device"]
    assert report["live_peak"]["device"] <= plan["budgets"]["device"]


def test_clock_mode_with_delays_has_eagers_bits():
    step, entries, kept, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    plan = make_plan(graph, profile, "outsize", TIGHT)
    options = {"clock_mode": True, "seed": 3, "longest_delay_ns": 200_000}
    check_training(Run(graph, profile, plan, entries, **options), step, kept, inputs, loss)


# --- generators -----------------------------------------------------------------------------------


def dropout_step():
    step = StepWriter()
    x = torch.randn(64, 64)
    xs = step.input(x)
    torch.manual_seed(7)
    y, mask = step.call("aten.native_dropout.default", xs, 0.5, True, rng=True)
    z = step.call("aten.mul.Tensor", y, 3.0)
    out = step.call("aten.add.Tensor", z, y, 1)
    again, _ = step.call("aten.native_dropout.default", out, 0.25, True, rng=True)
    return step, {step.storage_id(xs): x}, out, again, torch.get_rng_state()


def hand_plan(step: StepWriter, order: list, residencies: list, entry: list, exit: list) -> dict:
    """A plan in one stream. `order`: (kind, op, operand residencies)."""
    instructions = [
        {"stream": "compute", "kind": kind, "op": op, "operands": operands}
        for kind, op, operands in order
    ]
    return {
        "format": "outsize-plan",
        "version": 1,
        "planner": "by hand",
        "budgets": {"device": 1 << 20, "host": 0, "disk": 0},
        "residencies": residencies,
        "instructions": instructions,
        "entry": [{"residency": r} for r in entry],
        "exit": [{"residency": r} for r in exit],
    }


def test_a_recomputed_dropout_draws_what_it_drew():
    step, inputs, out, again, state_after = dropout_step()
    size = {k: s["bytes"] for k, s in enumerate(step.storages)}
    graph, profile = measured(step, [out, again])
    # Every storage at a place of its own; y and its mask are made once more for the second reader.
    x, y, mask, z, o, a, mask2 = range(7)
    places = [
        {"tier": "device", "storage": s, "bytes": [0, size[s]], "address": 32768 * k}
        for k, s in enumerate([x, y, mask, z, o, a, mask2, y, mask])
    ]
    order = [
        ("run", 0, [0, 1, 2]),
        ("run", 1, [1, 3]),
        ("rerun", 0, [0, 7, 8]),
        ("run", 2, [3, 7, 4]),
        ("run", 3, [4, 5, 6]),
    ]
    plan = hand_plan(step, order, places, [0], [4, 5])
    for instruction in plan["instructions"]:
        workspace = json.loads(profile)["ops"][instruction["op"]].get("workspace_bytes", 0)
        if workspace:
            instruction["workspace"] = [500_032, 500_032 + workspace]
    run = Run(graph, profile, plan, {})
    torch.manual_seed(7)
    result = run.step(inputs)
    assert len(result["report"]["rerun_ops"]) == 1
    for tensor in (out, again):
        assert same_bits(view_bytes(result["outputs"][step.storage_id(tensor)], tensor), tensor)
    assert torch.equal(torch.get_rng_state(), state_after)


# --- requests outside the plan --------------------------------------------------------------------


@pytest.mark.parametrize("change", [1, -1])
def test_a_request_of_another_size_stops_the_step_and_undoes_it(change):
    step, entries, _, inputs, loss = training_step()
    graph, good = measured(step, [loss])
    plan = make_plan(graph, good, "keep", 1 << 20)
    bad = json.loads(good)
    request = bad["ops"][2]["requests"][0]
    request[0] += change
    if change > 0:
        with pytest.raises(outsize_core.BadInputError, match=r"op 2 aten.mm.default \(second"):
            Run(graph, json.dumps(bad), plan, entries)
        return
    run = Run(graph, json.dumps(bad), plan, entries)
    state = torch.get_rng_state()
    with pytest.raises(outsize_core.StepError) as failure:
        run.step(inputs, lr=0.1)
    text = str(failure.value)
    assert "op 2 aten.mm.default (second, train.py:3)" in text
    assert "request 0 of 1024 bytes; the plan has 1023" in text
    assert failure.value.undone and failure.value.mixed == []
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in entries.items():
        assert same_bits(run.tensors[name], tensor)


def test_a_request_too_many_stops_the_step():
    step, entries, _, inputs, loss = training_step()
    graph, good = measured(step, [loss])
    plan = make_plan(graph, good, "keep", 1 << 20)
    bad = json.loads(good)
    bad["ops"][1]["requests"] = []
    run = Run(graph, json.dumps(bad), plan, entries)
    with pytest.raises(outsize_core.StepError, match=r"aten.relu.default.*the plan has 0 requests"):
        run.step(inputs, lr=0.1)
    # The same session, told better, runs on.
    handle = run.session.load(
        graph, good, json.dumps({k: v for k, v in plan.items() if k != "planned"})
    )
    run.session.step(handle, inputs, {"lr": 0.1})


def test_a_step_that_changed_something_large_is_poisoned_until_restored():
    step, entries, kept, inputs, loss = training_step(width=128)
    assert entries["w1"].nbytes >= LARGE
    graph, profile = measured(step, [loss])
    plan = make_plan(graph, profile, "keep", 4 << 20)
    # The very last op, in place on w2, is said to give back something else.
    text = json.loads(graph)
    text["ops"][-1]["results"] = text["ops"][-2]["results"]
    run = Run(json.dumps(text), profile, plan, entries)
    with pytest.raises(outsize_core.StepError) as failure:
        run.session.step(run.handle, inputs, {"lr": 0.1})
    assert not failure.value.undone
    assert set(failure.value.mixed) == {"w1", "w2", "m1", "m2"}
    assert run.session.poisoned
    with pytest.raises(outsize_core.BadInputError, match="mix of two steps in: .*w1"):
        run.session.step(run.handle, inputs, {"lr": 0.1})
    for name, tensor in entries.items():
        run.tensors[name].copy_(tensor)
    run.session.mark_restored()
    good = run.session.load(
        graph, profile, json.dumps({k: v for k, v in plan.items() if k != "planned"})
    )
    run.session.step(good, inputs, {"lr": 0.1})
    for name, tensor in kept.items():
        assert same_bits(run.tensors[name], tensor), name


# --- worker threads -------------------------------------------------------------------------------


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def attention_backward():
    torch.manual_seed(3)
    shape = (2, 4, 96, 32)
    q, k, v, grad = (torch.randn(shape, dtype=torch.bfloat16) for _ in range(4))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    step = StepWriter()
    given = [step.input(t) for t in (grad, q, k, v, out, lse)]
    grads = step.call(
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default", *given, 0.0, False
    )
    inputs = {step.storage_id(s): t for s, t in zip(given, (grad, q, k, v, out, lse), strict=True)}
    return step, list(grads), inputs


def scratch_plan(step: StepWriter, workspace: int) -> dict:
    address, places = 0, []
    for k, storage in enumerate(step.storages):
        places.append(
            {"tier": "device", "storage": k, "bytes": [0, storage["bytes"]], "address": address}
        )
        address += (storage["bytes"] + 63) // 64 * 64
    op = step.ops[0]
    operands = [access[0] for access in op["reads"] + op["makes"]]
    plan = hand_plan(step, [("run", 0, operands)], places, list(range(6)), list(range(6, 9)))
    if workspace:
        plan["instructions"][0]["workspace"] = [address, address + workspace]
    plan["budgets"]["device"] = 1 << 22
    return plan


def test_worker_threads_are_served_from_scratch(two_threads):
    step, grads, inputs = attention_backward()
    workspace = 1 << 20
    step.costs[0].update(scratch=True, workspace_bytes=workspace)
    graph = step.graph(grads)
    before = outsize_core.counters()["default_requests"]
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        *inputs.values(), 0.0, False
    )
    eager_requests = outsize_core.counters()["default_requests"] - before
    for round_ in range(5):
        run = Run(graph, step.profile(), scratch_plan(step, workspace), {})
        before = outsize_core.counters()["default_requests"]
        result = run.step(inputs)
        # All that the default path served are the generator's state and the outputs' copies.
        assert outsize_core.counters()["default_requests"] - before == 1 + 3
        # How many the kernel makes for itself differs from processor to processor: 8 to hundreds.
        assert result["report"]["requests"] == eager_requests > 1 + 3
        for grad in grads:
            raw = result["outputs"][step.storage_id(grad)]
            assert same_bits(view_bytes(raw, grad), grad), round_


def test_too_little_scratch_stops_the_step(two_threads):
    step, grads, inputs = attention_backward()
    step.costs[0].update(scratch=True, workspace_bytes=4096)
    run = Run(step.graph(grads), step.profile(), scratch_plan(step, 4096), {})
    with pytest.raises(outsize_core.StepError, match="scratch is full: .* of the 4096 planned"):
        run.step(inputs)


def test_a_worker_request_without_scratch_stops_the_step(two_threads):
    # A kernel that allocates on its worker threads only once they have work: whichever thread comes
    # first is outside the plan.
    step, grads, inputs = attention_backward()
    run = Run(step.graph(grads), step.profile(), scratch_plan(step, 0), {})
    with pytest.raises(
        outsize_core.StepError, match="flash_attention_for_cpu_backward.*(worker thread|request)"
    ):
        run.step(inputs)


def test_other_threads_are_left_alone():
    step, entries, kept, inputs, loss = training_step(width=256)
    graph, profile = measured(step, [loss])
    run = Run(graph, profile, make_plan(graph, profile, "keep", 8 << 20), entries)
    stop = threading.Event()
    made: list[torch.Tensor] = []

    def load_data() -> None:
        while not stop.is_set():
            made.append(torch.full((17, 19), 2.5))
            if len(made) > 100:
                made.pop(0)

    loader = threading.Thread(target=load_data)
    loader.start()
    try:
        for _ in range(20):
            run.step(inputs, lr=0.0)
    finally:
        stop.set()
        loader.join()
    low = run.session.at("device", 0, 1).data_ptr()
    for tensor in made:
        assert torch.equal(tensor, torch.full((17, 19), 2.5))
        assert not low <= tensor.data_ptr() < low + (8 << 20)


# --- homes ----------------------------------------------------------------------------------------


def test_tensors_move_to_their_home_and_back():
    session = outsize_core.Session(1 << 16, 1 << 16)
    tensor = torch.arange(100.0)
    view, alias = tensor[10:20], tensor.data
    version = tensor._version
    wanted = tensor.clone()
    session.adopt(tensor, "host", 4096)
    assert session.home_of(tensor) == ("host", 4096, 400)
    assert session.home_of(view) == ("host", 4096, 400)
    assert tensor._version > version
    assert session.adopted() == [("host", 4096, 400)]
    raw = session.at("host", 4096, 400)
    raw.view(torch.float32)[10] = -1.0
    assert view[0] == -1.0 and alias[10] == -1.0
    session.repoint(tensor, "device", 64)
    assert session.adopted() == [("device", 64, 400)]
    session.at("device", 64, 400).view(torch.float32).fill_(5.0)
    assert torch.equal(alias, torch.full((100,), 5.0))
    assert raw.view(torch.float32)[11] == wanted[11]
    session.release(tensor)
    assert session.home_of(tensor) is None and session.adopted() == []
    assert torch.equal(tensor, torch.full((100,), 5.0))


def test_an_adopted_tensor_outlives_its_session():
    session = outsize_core.Session(1 << 16)
    tensor = torch.arange(64.0)
    session.adopt(tensor, "device", 0)
    del session
    assert torch.equal(tensor * 1, torch.arange(64.0))


@pytest.mark.parametrize(
    ("tier", "address", "text"),
    [("device", 65_535, "400 bytes at 65535"), ("disk", 0, "no disk tier"), ("tape", 0, "'tape'")],
)
def test_a_home_outside_the_session_is_refused(tier, address, text):
    session = outsize_core.Session(1 << 16)
    with pytest.raises(outsize_core.BadInputError, match=text):
        session.adopt(torch.zeros(100), tier, address)


def test_a_step_does_not_write_over_a_foreign_home():
    step, entries, _, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    run = Run(graph, profile, make_plan(graph, profile, "keep", 1 << 20), entries)
    stranger = torch.ones(16)
    run.session.adopt(stranger, "device", run.plan["residencies"][0]["address"] + 64)
    with pytest.raises(outsize_core.BadInputError, match="the plan uses for something else"):
        run.step(inputs, lr=0.1)
    run.session.release(stranger)
    run.step(inputs, lr=0.1)


def test_homes_on_disk(tmp_path):
    step = StepWriter()
    entry = torch.randn(4096)
    w = step.parameter("w", entry)
    step.call("aten.mul_.Tensor", w, w)
    graph, profile = measured(step)
    size = 4 * 4096
    plan = {
        "format": "outsize-plan",
        "version": 1,
        "planner": "by hand",
        "budgets": {"device": size, "host": size, "disk": 4 * size},
        "residencies": [
            {"tier": "disk", "storage": 0, "bytes": [0, size], "address": size},
            {"tier": "host", "storage": 0, "bytes": [0, size], "address": 0},
            {"tier": "device", "storage": 0, "bytes": [0, size], "address": 0},
            {"tier": "disk", "storage": 0, "bytes": [0, size], "address": 2 * size},
        ],
        "instructions": [
            {"stream": "read", "kind": "copy", "from": 0, "to": 1, "bytes": [0, size]},
            {"stream": "in", "kind": "copy", "from": 1, "to": 2, "bytes": [0, size], "waits": [0]},
            {"stream": "compute", "kind": "run", "op": 0, "operands": [2], "waits": [1]},
            {
                "stream": "write",
                "kind": "copy",
                "from": 2,
                "to": 3,
                "bytes": [0, size],
                "waits": [2],
            },
        ],
        "entry": [{"residency": 0, "home": True}],
        "exit": [{"residency": 3, "home": True}],
    }
    run = Run(graph, profile, plan, {"w": entry}, disk_dir=str(tmp_path))
    assert run.session.home_of(run.tensors["w"]) == ("disk", size, size)
    report = run.step()["report"]
    assert run.session.home_of(run.tensors["w"]) == ("disk", 2 * size, size)
    assert report["moved_read"] == report["moved_write"] == size
    assert same_bits(run.tensors["w"], entry * entry)
    # What the user writes through the mapping is what the next step reads.
    run.tensors["w"].fill_(3.0)
    run.session.adopt(run.tensors["w"], "disk", size)
    run.step()
    assert same_bits(run.tensors["w"], torch.full((4096,), 9.0))


# --- inputs and scalars ---------------------------------------------------------------------------


def test_inputs_are_checked_before_anything_runs():
    step, entries, _, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    run = Run(graph, profile, make_plan(graph, profile, "keep", 1 << 20), entries)
    some = dict(list(inputs.items())[:1])
    short = {k: t[:4].clone() for k, t in inputs.items()}
    for given, text in [
        (some, "was not given"),
        (short, "wanted 1024 bytes, had a storage of 512"),
        ({**inputs, 0: torch.zeros(1)}, "storage 0 'w1' is not an input"),
    ]:
        with pytest.raises(outsize_core.BadInputError, match=text):
            run.step(given, lr=0.1)
    with pytest.raises(outsize_core.BadInputError, match="scalar input 'lr' was not given"):
        run.step(inputs)
    with pytest.raises(outsize_core.BadInputError, match="'rate' is none of this graph's"):
        run.step(inputs, lr=0.1, rate=1.0)
    # A contiguous part of something larger is taken by its elements.
    wide = {k: torch.cat([t, t])[: t.shape[0]] for k, t in inputs.items()}
    run.step(wide, lr=0.0)
    assert all(same_bits(run.tensors[n], entries[n]) for n in ("w1", "w2"))


def test_scalars_read_from_tensors_follow_python():
    step = StepWriter()
    count = step.parameter("count", torch.tensor(4.0), role="optimizer_state")
    beta = step.number("beta", 0.9)
    w = step.parameter("w", torch.ones(8))
    step.call("aten.add_.Tensor", count, 1, 1)
    item = step.call("aten._local_scalar_dense.default", count)
    power = step.function("pow", 0.9**5.0, beta, item)
    correction = step.function("sub", 1 - 0.9**5.0, 1, power)
    rate = step.function("truediv", 0.1 / (1 - 0.9**5.0), 0.1, correction)
    step.call("aten.mul_.Tensor", w, rate)
    entries = {"count": torch.tensor(4.0), "w": torch.ones(8)}
    graph, profile = measured(step)
    run = Run(graph, profile, make_plan(graph, profile, "keep", 1 << 16), entries)
    result = run.step(beta=0.9)
    assert isinstance(rate, Scalar)
    assert result["scalars"][rate.index] == 0.1 / (1 - 0.9**5.0)
    assert same_bits(run.tensors["w"], w) and run.tensors["count"].item() == 5.0
    result = run.step(beta=0.9)
    assert result["scalars"][rate.index] == 0.1 / (1 - 0.9**6.0)


def test_a_guard_that_fails_is_known_before_the_step():
    step = StepWriter()
    w = step.parameter("w", torch.ones(8))
    lr = step.number("lr", 0.5)
    small = step.function("lt", True, lr, 1.0)
    step.guard(small, True)
    step.call("aten.mul_.Tensor", w, lr)
    graph, profile = measured(step)
    run = Run(graph, profile, make_plan(graph, profile, "keep", 1 << 16), {"w": torch.ones(8)})
    assert run.session.failed_guard(run.handle, {"lr": 0.5}) == -1
    assert run.session.failed_guard(run.handle, {"lr": 1.5}) == 0
    with pytest.raises(outsize_core.BadInputError, match="guard 0: .* is False.*train.py:12"):
        run.step(lr=1.5)
    assert same_bits(run.tensors["w"], torch.ones(8))


def test_another_thread_count_is_refused():
    step, entries, _, inputs, loss = training_step()
    graph, profile = measured(step, [loss])
    run = Run(graph, profile, make_plan(graph, profile, "keep", 1 << 20), entries)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(outsize_core.BadInputError, match="captured with"):
            run.step(inputs, lr=0.1)
    finally:
        torch.set_num_threads(threads)
    run.step(inputs, lr=0.1)


# --- the default path -----------------------------------------------------------------------------


def test_the_limit_stops_what_no_plan_serves():
    outsize_core.reset_counters()
    live = outsize_core.counters()["default_live"]
    outsize_core.set_limit(live + (1 << 20))
    try:
        with pytest.raises(
            RuntimeError, match="can't allocate memory: you tried to allocate 2097152"
        ):
            torch.empty(2 << 20, dtype=torch.uint8)
        kept = torch.empty(1 << 19, dtype=torch.uint8)
        assert outsize_core.counters()["default_live"] == live + (1 << 19)
        del kept
    finally:
        outsize_core.set_limit(0)
    counters = outsize_core.counters()
    assert counters["default_live"] == live
    assert counters["default_live_peak"] >= live + (1 << 19)
