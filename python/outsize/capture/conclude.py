"""What follows the step: outputs, gradients, new optimizer state, guards, and the graph.

conclude(session, result)   # the Capture of a step that returned `result`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from outsize.capture.build import Built, build_graph
from outsize.capture.result import Capture, Input, NewState, Output, Replay
from outsize.capture.scalars import Number, node_of
from outsize.capture.sites import Site
from outsize.capture.storages import has_storage, input_begin
from outsize.errors import CaptureError

OUTSIDE = "do it outside the step, from what the step returns"

if TYPE_CHECKING:
    from outsize.capture.session import Session


def conclude(session: Session, result: Any) -> Capture:
    records, storages = session.storages.records, session.storages
    if session.seeded is not None and any(op.uses_rng for op in session.recorder.ops):
        name, site = session.seeded
        raise CaptureError(
            f"the step sets PyTorch's generator (torch.{name}; activation checkpointing does)",
            str(site),
            "remove it: Outsize recomputes by itself, with the same draws",
        )
    for optimizer in {id(o): o for o in session.stepped}.values():
        if hasattr(optimizer, "_opt_called"):
            mark = Replay("optimizer marked as stepped", _marker(optimizer))
            session.replays.insert(0, mark)
    grads, dropped = _gradients(session)
    new_state = _new_state(session)
    leaves_out, spec = pytree.tree_flatten(result)
    outputs = [_output(session, leaf) for leaf in leaves_out]
    for record in records:
        if record.entry and record.wrote:
            record.exit = True
            if record.role == "constant":
                record.role = "buffer"
    for output in outputs:
        if output.kind == "value":
            record = records[storages.values[output.id][0]]
            record.exit = True
            if record.role == "activation":
                record.role = "output"
    wanted = [o.id for o in outputs if o.kind == "value"]
    wanted += [value for value in grads.values() if value is not None]
    wanted += [state.value for state in new_state if state.value is not None]
    devices = {t.device.type for _, t in session.names.parameters}
    built = build_graph(
        storages,
        session.scalars,
        session.recorder.guards,
        session.recorder.ops,
        wanted,
        session.title,
        max(devices - {"cpu"}, default="cpu"),
    )
    return _result(session, built, outputs, spec, grads, dropped, new_state)


def _marker(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    return lambda: setattr(optimizer, "_opt_called", True)


def _result(
    session: Session,
    built: Built,
    outputs: list[Output],
    spec: Any,
    grads: dict[str, int | None],
    dropped: list[str],
    new_state: list[NewState],
) -> Capture:
    values, ids, records = built.values, built.storages, session.storages.records
    guard = _guard(session)
    places = [(p, p.before()) for p in _seal_places(session)]
    held = {id(r.tensor) for i, r in enumerate(records) if r.entry and i in ids}
    tensors = session.seal.tensor_places(lambda tensor: id(tensor) in held)
    followed = [*_seal_places(session), *tensors]
    places += [(p, p.before()) for p in [*tensors, *session.seal.links(followed)]]
    gradient_of = {f"grad:{name}": name for name, _ in session.names.parameters}
    captured = Capture(
        graph=built.graph,
        signature=session.signature,
        inputs=[Input(ids[s], leaf, before) for s, leaf, before in session.inputs],
        scalar_inputs=session.scalar_inputs,
        entries={
            ids[index]: record.tensor
            for index, record in enumerate(records)
            if record.entry and record.role not in ("input", "gradient")
            if index in ids and record.tensor is not None
        },
        grad_entries={
            ids[index]: gradient_of[record.name.removesuffix(":before")]
            for index, record in enumerate(records)
            if record.entry and record.role == "gradient" and index in ids
        },
        outputs=[Output("value", values[o.id]) if o.kind == "value" else o for o in outputs],
        output_spec=spec,
        grads={n: values[v] if v is not None else None for n, v in grads.items()},
        dropped_grads=dropped,
        new_state=[
            (
                NewState(s.optimizer, s.owner, s.path, values[s.value], None)
                if s.value is not None
                else s
            )
            for s in new_state
        ],
        models=session.names.models,
        optimizers=session.names.optimizers,
        bound=session.bound,
        replays=session.replays,
        stepped=session.stepped,
        parameters=dict(session.names.parameters),
        places=places,
        guard=guard,
    )
    for record in records:
        if record.role == "input":
            record.tensor = None
    return captured


def _seal_places(session: Session) -> list[Any]:
    return [p for p in session.seal.places() if p.path not in session.symbols]


def _gradients(session: Session) -> tuple[dict[str, int | None], list[str]]:
    grads: dict[str, int | None] = {}
    dropped: list[str] = []
    records = session.storages.records
    for storage in session.recorder.gradients:
        if not records[storage].entry:
            records[storage].role = "gradient"
    for (name, parameter), (_, before) in zip(session.names.parameters, session.gradients_before):
        now = parameter.grad
        old = session.storages.find(before) if before is not None and has_storage(before) else None
        if now is None and before is not None:
            dropped.append(name)
            if old is None:
                old = session.unknown_tensor(before, "", Site())
            records[old].exit = False
        elif now is before:
            if before is not None and old is None:
                session.unknown_tensor(before, "", Site())
        elif now is not None:
            if old is not None:
                records[old].exit = False
                records[old].name += ":before"
            found = session.storages.find(now)
            if found is None or records[found].entry:
                raise CaptureError(
                    f"the step puts a tensor of its own into {name}.grad",
                    way_out="let backward() make the gradient",
                )
            record = records[found]
            record.role, record.exit, record.persistent = "gradient", True, True
            record.name = record.name or f"grad:{name}"
            grads[name] = session.storages.value_of(now)
    return grads, dropped


def _new_state(session: Session) -> list[NewState]:
    result: list[NewState] = []
    before = dict(session.states_before)
    for state in session.names.states():
        key = (state.optimizer, id(state.owner), state.path)
        known = key in before
        old, now = before.pop(key, None), state.value
        name = session.names.state_name(state)
        if now is old and known:
            continue
        if node_of(now) is not None or known and not isinstance(now, torch.Tensor):
            raise CaptureError(
                f"the optimizer keeps a Python number, {name}, and changes it",
                way_out="keep it as a tensor (torch's own optimizers do)",
            )
        if not isinstance(now, torch.Tensor):
            result.append(NewState(state.optimizer, state.owner, state.path, None, now))
        elif isinstance(old, torch.Tensor):
            _replaced_state(session, name, old, now)
        else:
            found = session.storages.find(now)
            if found is None:
                found = session.unknown_tensor(now, "", Site())
            record = session.storages.records[found]
            record.role, record.exit, record.persistent = "optimizer_state", True, True
            record.name = name
            value = session.storages.value_of(now)
            result.append(NewState(state.optimizer, state.owner, state.path, value))
    for index, _, path in before:
        raise CaptureError(f"the step deletes optimizer {index}'s state {path}", way_out=OUTSIDE)
    return result


def _replaced_state(session: Session, name: str, old: torch.Tensor, now: torch.Tensor) -> None:
    same = old.dtype == now.dtype and old.size() == now.size() and old.device == now.device
    if not same:
        raise CaptureError(
            f"the optimizer replaces {name} ({old.dtype}, {tuple(old.size())}) by a tensor "
            f"of another kind ({now.dtype}, {tuple(now.size())})",
            way_out="update state in place",
        )
    session.recorder.add_copy(old, now, Site(phase="optimizer"))


def _output(session: Session, leaf: Any) -> Output:
    for index, (_, argument) in enumerate(session.flat):
        if argument is leaf and isinstance(leaf, torch.Tensor):
            return Output("argument", index, None)
    node = node_of(leaf)
    if node is not None:
        return Output("scalar", node.id if node.id is not None else -1)
    if isinstance(leaf, torch.Tensor):
        found = session.storages.find(leaf)
        if found is not None and (
            isinstance(leaf, FakeTensor) or session.storages.records[found].made
        ):
            return Output("value", session.storages.value_of(leaf))
    return Output("object", -1, leaf)


def _guard(session: Session) -> Callable[[list[Any]], str]:
    """Evaluates the branches taken on scalars for other arguments: what differs, or ""."""
    guards = list(session.recorder.guards)
    if not guards:
        return lambda flat: ""
    records, scalars = session.storages.records, session.scalars.records
    readers = {s.scalar: s.read for s in session.scalar_inputs}
    leaf_of = {storage: (leaf, before) for storage, leaf, before in session.inputs}
    slices = {
        index: session.shadow.slice(*record.source)
        for index, record in enumerate(scalars)
        if record.source is not None and record.present is not None
    }

    def check(flat: list[Any]) -> str:
        known: dict[int, Number | None] = {}

        def entry(storage: int) -> torch.Tensor | None:
            if storage in leaf_of:
                return flat[leaf_of[storage][0]]  # type: ignore[no-any-return]
            return records[storage].tensor

        def begin(storage: int) -> int:
            if storage not in leaf_of:
                return records[storage].begin
            leaf, before = leaf_of[storage]
            return input_begin(flat[leaf], before)

        def value(scalar: int) -> Number | None:
            if scalar not in known:
                known[scalar] = compute_scalar(scalar)
            return known[scalar]

        def compute_scalar(scalar: int) -> Number | None:
            record = scalars[scalar]
            if record.kind == "input":
                return readers[scalar](flat)
            if record.kind == "op":
                return session.scalars.compute(record, value)
            found = slices.get(scalar)
            if found is None or record.source is None:
                return None
            return session.shadow.run(found[0], record.source[1], entry, value, begin)

        for guard in guards:
            now = value(guard.scalar)
            if now != guard.outcome:
                return f"the branch at {guard.site} goes {now}, went {guard.outcome}"
        return ""

    return check
