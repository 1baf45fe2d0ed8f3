"""Assembles the graph's JSON from what the recorder has written down.

Constants that the step makes and never writes to are folded (their copy is dropped), and values and
storages that nothing mentions are left out; the ids are renumbered in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from outsize.capture.encode import number
from outsize.capture.recorder import GuardRecord, OpRecord
from outsize.capture.scalars import Ref, ScalarTable
from outsize.capture.storages import StorageTable


@dataclass
class Built:
    """The graph, and the new ids by the recorder's own."""

    graph: dict[str, Any]
    values: dict[int, int] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)


def values_in(argument: Any) -> Iterator[int]:
    if isinstance(argument, list):
        for item in argument:
            yield from values_in(item)
    elif isinstance(argument, dict) and "value" in argument:
        yield argument["value"]


def fold_constants(
    storages: StorageTable, ops: list[OpRecord]
) -> tuple[list[OpRecord], dict[int, int]]:
    """The ops without copies of constants that nobody writes to; and which storage took whose place."""
    place: dict[int, int] = {}
    kept: list[OpRecord] = []
    for op in ops:
        if op.lifted:
            made = storages.records[op.makes[0]]
            if not made.wrote and not made.exit:
                place[op.makes[0]] = op.reads[0][0] if op.reads else _storage(storages, op)
                continue
        kept.append(op)
    return kept, place


def _storage(storages: StorageTable, op: OpRecord) -> int:
    value: int = op.args[0]["value"]
    return storages.values[value][0]


def build_graph(
    storages: StorageTable,
    scalars: ScalarTable,
    guards: list[GuardRecord],
    ops: list[OpRecord],
    wanted_values: list[int],
    title: str,
    device_type: str,
) -> Built:
    ops, place = fold_constants(storages, ops)
    used_values = set(wanted_values)
    used_storages = {
        i for i, r in enumerate(storages.records) if r.exit or r.entry and r.role != "constant"
    }
    for op in ops:
        used_values.update(values_in(op.args))
        used_values.update(values_in(op.results))
        used_storages.update(op.makes)
        used_storages.update(place.get(s, s) for s, _, _ in [*op.reads, *op.mutates])
    values = storages.json_values()
    for value in values:
        value["storage"] = place.get(value["storage"], value["storage"])
    used_storages.update(values[v]["storage"] for v in used_values)
    new_storage = {old: new for new, old in enumerate(sorted(used_storages))}
    new_value: dict[int, int] = {}
    kept_values: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for old in sorted(used_values):
        value = {**values[old], "storage": new_storage[values[old]["storage"]]}
        key = repr(value)
        if key not in seen:
            seen[key] = len(kept_values)
            kept_values.append(value)
        new_value[old] = seen[key]
    all_storages = storages.json_storages()
    graph = {
        "format": "outsize-graph",
        "version": 1,
        "title": title,
        "torch_version": torch.__version__.split("+")[0],
        "device_type": device_type,
        "threads": torch.get_num_threads(),
        "storages": [all_storages[old] for old in sorted(used_storages)],
        "values": kept_values,
        "scalars": [_scalar(scalars, i) for i in range(len(scalars.records))],
        "guards": [_guard(guard) for guard in guards],
        "ops": [_op(op, storages, place, new_storage, new_value) for op in ops],
    }
    for old, new in place.items():
        if new in new_storage:
            new_storage[old] = new_storage[new]
    return Built(graph, new_value, new_storage)


def _scalar(scalars: ScalarTable, index: int) -> dict[str, Any]:
    record = scalars.records[index]
    result: dict[str, Any] = {"kind": record.kind}
    if record.name:
        result["name"] = record.name
    if record.kind == "op":
        result["function"] = record.function
        result["args"] = [
            {"scalar": a.id} if isinstance(a, Ref) else number(a, "") for a in record.args
        ]
    if record.present is not None:
        result["present"] = number(record.present, "")
    return result


def _guard(guard: GuardRecord) -> dict[str, Any]:
    result: dict[str, Any] = {"scalar": guard.scalar, "outcome": number(guard.outcome, "")}
    site = guard.site.json()
    if site:
        result["site"] = site
    return result


def _renumber(argument: Any, new_value: dict[int, int]) -> Any:
    if isinstance(argument, list):
        return [_renumber(item, new_value) for item in argument]
    if isinstance(argument, dict) and "value" in argument:
        return {"value": new_value[argument["value"]]}
    return argument


def _op(
    op: OpRecord,
    storages: StorageTable,
    place: dict[int, int],
    new_storage: dict[int, int],
    new_value: dict[int, int],
) -> dict[str, Any]:
    def ranges(spans: list[tuple[int, int, int]]) -> list[list[int]]:
        renamed = [[new_storage[place.get(s, s)], begin, end] for s, begin, end in spans]
        return sorted(renamed)

    makes = [(s, 0, storages.records[s].bytes) for s in op.makes]
    result: dict[str, Any] = {
        "name": op.name,
        "args": _renumber(op.args, new_value),
        "results": _renumber(op.results, new_value),
        "reads": ranges(op.reads),
        "makes": ranges([span for span in makes if span[2]]),
        "mutates": ranges(op.mutates),
    }
    for flag in ("uses_rng", "collective", "host_sync"):
        if getattr(op, flag):
            result[flag] = True
    site = op.site.json()
    if site:
        result["site"] = site
    return result
