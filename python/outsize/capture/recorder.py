"""Writes down the ops that one call of the user's step dispatches below autograd.

    with Recorder(storages, scalars, sites, fake_mode): step(batch)
    recorder.ops   # in program order, views and detaches folded into values

In the fake flavour nothing real is touched: each real tensor argument is answered by a fake tensor of
its geometry, and an in-place op returns the object it was given. In the real flavour each op runs.
The list is what eager dispatches: no decompositions, no functionalization, no graph passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode

from outsize.capture import tables
from outsize.capture.encode import default_of, encode
from outsize.capture.scalars import Number, Ref, ScalarNode, ScalarTable, node_of, symbolic
from outsize.capture.sites import Site, Sites
from outsize.capture.storages import (
    StorageRecord,
    StorageTable,
    dtype_name,
    extent,
    has_storage,
    storage_address,
)
from outsize.errors import CaptureError

_MOST_ZEROS = 1 << 30  # bytes of operands for which a kernel is asked for its results' shapes
Range = tuple[int, int, int]
DYNAMIC_SHAPE = "give the step tensors of fixed shape (torch.where, a mask) or move this out of it"
CONTROL_FLOW = "use torch.where, or move it out of the step"


@dataclass
class OpRecord:
    """One entry of the graph's `ops`."""

    name: str
    args: list[Any]
    results: list[Any]
    reads: list[Range]
    makes: list[int]  # whole storages
    mutates: list[Range]
    uses_rng: bool
    collective: bool
    host_sync: bool
    site: Site
    lifted: bool = False  # a clone of a constant: dropped if nobody writes to it


@dataclass
class GuardRecord:
    """A branch that Python took on a scalar."""

    scalar: int
    outcome: Number
    site: Site


@dataclass
class _Access:
    reads: dict[int, tuple[int, int]] = field(default_factory=dict)
    mutates: dict[int, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def add(into: dict[int, tuple[int, int]], touched: Range) -> None:
        storage, begin, end = touched
        if begin == end:
            return
        old = into.get(storage)
        into[storage] = (min(old[0], begin), max(old[1], end)) if old else (begin, end)

    def settle(self) -> None:
        """What is mutated is not listed as read as well; ranges that overlap become one."""
        for storage, (begin, end) in list(self.reads.items()):
            span = self.mutates.get(storage)
            if span is not None and begin < span[1] and span[0] < end:
                self.mutates[storage] = (min(begin, span[0]), max(end, span[1]))
                del self.reads[storage]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list):
        return [map_leaves(function, item) for item in value]
    if isinstance(value, tuple):
        return tuple(map_leaves(function, item) for item in value)
    return function(value)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """See the file's head. One thread; one use."""

    def __init__(
        self,
        storages: StorageTable,
        scalars: ScalarTable,
        sites: Sites,
        fake_mode: FakeTensorMode | None,
        unknown_tensor: Callable[[torch.Tensor, str, Site], int],
        fresh_constant: Callable[[torch.Tensor, Site], torch.Tensor],
        evaluate: Callable[[int, int], Number | None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.check_writes = False
        # Integers that the batch alone decides are plain numbers, and the capture holds for them.
        self.plain_integers = False
        self.storages = storages
        self.scalars = scalars
        self.sites = sites
        self.fake_mode = fake_mode
        self.ops: list[OpRecord] = []
        self.guards: list[GuardRecord] = []
        # Real tensors that an op was to write: the object, its version and requires_grad before.
        self.touched: dict[int, tuple[torch.Tensor, int, bool]] = {}
        self.gradients: dict[int, int] = {}  # storage -> id(parameter): set by AccumulateGrad
        # unknown_tensor(tensor, op, site): a record for a real tensor nobody has registered.
        self._unknown_tensor = unknown_tensor
        # fresh_constant(tensor, site): an entry of its own for what `torch.tensor(...)` has made.
        self._fresh_constant = fresh_constant
        # evaluate(op, value): the number that `value` holds before `op`, where it can be known.
        self._evaluate = evaluate
        self._plain: list[tuple[ScalarNode, float, Site]] = []
        self._functions: dict[Any, tuple[str, list[Any], list[str]]] = {}
        scalars.on_guard = self._on_guard
        scalars.on_unknown = self._on_unknown
        scalars.on_plain = self._on_plain

    # -- scalars --------------------------------------------------------------------------------
    def _on_guard(self, node: ScalarNode, outcome: Number) -> None:
        assert node.id is not None
        self.guards.append(GuardRecord(node.id, outcome, self.sites.now()))

    def _on_unknown(self, node: ScalarNode, what: str) -> None:
        assert node.id is not None
        source = self._item_source(node.id)
        raise CaptureError(
            f"the step needs {what} from tensor data{source}, which is known only while it runs",
            str(self.sites.now()),
            CONTROL_FLOW,
        )

    def _item_source(self, scalar: int) -> str:
        for op in self.ops:
            if {"scalar": scalar} in op.results:
                return f" (`.item()` at {op.site})"
        for argument in self.scalars.records[scalar].args:
            if isinstance(argument, Ref):
                source = self._item_source(argument.id)
                if source:
                    return source
        return ""

    def _on_plain(self, node: ScalarNode, value: float) -> None:
        self._plain.append((node, value, self.sites.now()))

    def settle_plain(self) -> None:
        """Numbers that were made plain and reached no op: the capture holds only for this value."""
        for node, value, site in self._plain:
            assert node.id is not None
            self.guards.append(GuardRecord(node.id, value, site))
        self._plain.clear()

    # -- dispatch -------------------------------------------------------------------------------
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in tables.IGNORED_NAMESPACES:
            return (
                self._run(func, args, kwargs) if func.namespace == "prim" else func(*args, **kwargs)
            )
        site = self.sites.now()
        try:
            return self._record(func, args, kwargs, site)
        except CaptureError as error:
            if error.where:
                raise
            raise CaptureError(f"{error.what} ({func})", str(site), error.way_out) from None

    def made_at(self, tensor: torch.Tensor) -> str:
        """Where the step made the tensor's storage; "" if it was there before."""
        storage = self.storages.find(tensor)
        sites = [op.site for op in self.ops if storage in op.makes]
        return str(sites[-1]) if sites else ""

    def _schema(self, func: Any) -> tuple[str, list[Any], list[str]]:
        known = self._functions.get(func)
        if known is None:
            arguments = list(func._schema.arguments)
            known = (str(func), arguments, [str(argument.type) for argument in arguments])
            self._functions[func] = known
        return known

    def _record(self, func: Any, args: Any, kwargs: dict[str, Any], site: Site) -> Any:
        name, schema, kinds = self._schema(func)
        if name.startswith(tables.REBINDING):
            raise CaptureError(
                "the step changes a tensor's storage in place",
                way_out="make a new tensor instead",
            )
        arguments = [
            args[i] if i < len(args) else kwargs.get(a.name, default_of(a))
            for i, a in enumerate(schema)
        ]
        if name == "aten.lift_fresh.default" and self.storages.find(arguments[0]) is None:
            return self._lift(arguments[0], site)
        for tensor in tensors_in(arguments):
            self._register(tensor, name, site)
        if name == "aten._local_scalar_dense.default":
            return self._item(name, arguments[0], site)
        if name in tables.READS_DATA:
            raise CaptureError("the step reads tensor data into Python", way_out=CONTROL_FLOW)
        if self._plain:
            self._bind_plain(arguments, kinds)
        refused = tables.unplannable(name, arguments)
        if refused:
            raise CaptureError(refused[0], way_out=refused[1])
        before = len(self.storages.records)
        encoded = [encode(a, k, self.storages.value_of) for a, k in zip(arguments, kinds)]
        watched = self._watched(name, schema, arguments) if self.check_writes else []
        outputs = self._repaired(name, arguments, self._run(func, args, kwargs))
        for position, tensor, copy in watched:
            if not torch.equal(_bytes_of(tensor), copy):
                raise CaptureError(
                    f"the op writes its argument {position} ({schema[position].name}), which its "
                    "schema does not mark",
                    way_out="report the op: Outsize keeps a table of such ops",
                )
        self._write_down(func, name, schema, arguments, encoded, outputs, before, site)
        return outputs

    def _watched(
        self, name: str, schema: list[Any], arguments: list[Any]
    ) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        """Copies of the operands that an op says it leaves alone."""
        written = {
            position
            for position, info in enumerate(schema)
            if info.alias_info is not None and info.alias_info.is_write
        } | set(tables.mutated_beyond_schema(name, arguments))
        changing = {
            storage_address(tensor)
            for position in written
            for tensor in tensors_in(arguments[position])
        }
        return [
            (position, tensor, _bytes_of(tensor).clone())
            for position, argument in enumerate(arguments)
            for tensor in tensors_in(argument)
            if storage_address(tensor) not in changing
        ]

    def _register(self, tensor: torch.Tensor, name: str, site: Site) -> None:
        if not has_storage(tensor):
            raise CaptureError(
                f"a tensor of layout {tensor.layout} reaches the step",
                way_out="use dense tensors (for embeddings: sparse=False)",
            )
        if self.storages.find(tensor) is None:
            if isinstance(tensor, FakeTensor):
                raise CaptureError("a fake tensor from outside this capture reaches the step")
            self._unknown_tensor(tensor, name, site)

    def _lift(self, tensor: torch.Tensor, site: Site) -> torch.Tensor:
        """`torch.tensor(...)` inside the step: a constant, and a copy of it that may be written."""
        constant = self.storages.value_of(self._fresh_constant(tensor, site))
        result = tensor
        if self.fake_mode is not None:
            with self.fake_mode:
                result = torch.empty_strided(
                    tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )
        storage = self.storages.add_made(result, str(site))
        self.ops.append(
            OpRecord(
                "aten.clone.default",
                [{"value": constant}, None],
                [{"value": self.storages.value_of(result)}],
                [self.storages.bytes_of(constant)],
                [storage],
                [],
                uses_rng=False,
                collective=False,
                host_sync=False,
                site=site,
                lifted=True,
            )
        )
        return result

    def _repaired(self, name: str, arguments: list[Any], outputs: Any) -> Any:
        """The outputs, with the dtypes that the real kernel gives them."""
        wrong = tables.true_dtypes(name, arguments)
        if self.fake_mode is None or not wrong:
            return outputs
        repaired = list(outputs)
        with self.fake_mode:
            for position, dtype in wrong.items():
                made = repaired[position]
                if isinstance(made, torch.Tensor) and made.dtype != dtype:
                    repaired[position] = torch.empty_strided(
                        made.size(), made.stride(), dtype=dtype, device=made.device
                    )
        return tuple(repaired)

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.fake_mode is None:
            return func(*map_leaves(_plain_number, args), **_map_values(_plain_number, kwargs))
        originals: dict[int, Any] = {}

        def stand_in(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return _plain_number(value)
            fake = value if isinstance(value, FakeTensor) else self.storages.fake_of(value)
            originals[id(fake)] = value
            return fake

        fake_args = map_leaves(stand_in, args)
        fake_kwargs = _map_values(stand_in, kwargs)
        operands = list(tensors_in([list(args), list(kwargs.values())]))
        if tables.ask_the_kernel(str(func), operands):
            error = CaptureError("the op's shape function is wrong for such operands")
            return self._by_real_kernel(func, fake_args, fake_kwargs, error)
        try:
            with self.fake_mode:
                outputs = func(*fake_args, **fake_kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            raise CaptureError(
                "the shape of a result depends on tensor data", way_out=DYNAMIC_SHAPE
            ) from None
        except (UnsupportedOperatorException, NotImplementedError) as error:
            raise CaptureError(f"the op has no shape function: {error}") from None
        except (AttributeError, TypeError) as error:
            if None not in args:
                raise
            raise CaptureError(
                f"the op takes an undefined tensor, which its shape function does not know ({error})",
                way_out="for an LSTM on CPU: torch.backends.mkldnn.flags(enabled=False)",
            ) from None
        except (RuntimeError, ValueError, AssertionError) as error:
            outputs = self._by_real_kernel(func, fake_args, fake_kwargs, error)
        return map_leaves(lambda value: originals.get(id(value), value), outputs)

    def _by_real_kernel(
        self, func: Any, args: Any, kwargs: dict[str, Any], error: Exception
    ) -> Any:
        """Shapes of an op whose shape function is stricter than its kernel: from the kernel, on zeros.

        A step that is wrong gets the kernel's own error, as without a capture.
        """
        tensors = [t for t in tensors_in([list(args), list(kwargs.values())])]
        size = sum(extent(tensor)[1] for tensor in tensors)
        if size > _MOST_ZEROS or torch.Tag.nondeterministic_seeded in func.tags:
            raise error

        def zeros(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            items = extent(value)[1] // value.element_size()
            base = torch.zeros(items, dtype=value.dtype, device=value.device)
            return base.as_strided(value.size(), value.stride(), value.storage_offset())

        real_args, real_kwargs = map_leaves(zeros, args), _map_values(zeros, kwargs)
        inputs = {storage_address(t) for t in tensors_in([real_args, list(real_kwargs.values())])}
        outputs = func(*real_args, **real_kwargs)
        if any(storage_address(tensor) in inputs for tensor in tensors_in(outputs)):
            raise error
        assert self.fake_mode is not None
        with self.fake_mode:
            return map_leaves(
                lambda t: (
                    torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)
                    if isinstance(t, torch.Tensor)
                    else t
                ),
                outputs,
            )

    def _item(self, name: str, tensor: torch.Tensor, site: Site) -> Any:
        value = self.storages.value_of(tensor)
        index = len(self.ops)
        kind = float if tensor.is_floating_point() else bool if tensor.dtype == torch.bool else int
        if self.fake_mode is None:
            present: Number | None = torch.ops.aten._local_scalar_dense.default(tensor)
            node = self.scalars.item(kind, (index, value), lambda: present)
        else:
            node = self.scalars.item(kind, (index, value), lambda: self._evaluate(index, value))
        self.ops.append(
            OpRecord(
                name,
                [{"value": value}],
                [{"scalar": node.id}],
                [self.storages.bytes_of(value)],
                [],
                [],
                uses_rng=False,
                collective=False,
                host_sync=True,
                site=site,
            )
        )
        if self.plain_integers and kind is not float and node.present() is not None:
            return node.guard_plain()
        return symbolic(node)

    def _bind_plain(self, arguments: list[Any], kinds: list[str]) -> None:
        """Links numbers that the argument parser made plain to the `float` arguments they became."""
        waiting, self._plain = self._plain, []
        for node, value, site in waiting:
            places = [
                index
                for index, argument in enumerate(arguments)
                if kinds[index] in ("float", "Optional[float]")
                and isinstance(argument, float)
                and argument == value
            ]
            if len(places) == 1:
                arguments[places[0]] = symbolic(node)
            else:  # it reached no argument, or which of several equal ones can't be told
                assert node.id is not None
                self.guards.append(GuardRecord(node.id, value, site))

    def _write_down(
        self,
        func: Any,
        name: str,
        schema: list[Any],
        arguments: list[Any],
        encoded: list[Any],
        outputs: Any,
        before: int,
        site: Site,
    ) -> None:
        if torch.Tag.inplace_view in func.tags and not name.startswith(tables.REBINDING):
            self._check_fake(name, arguments)
            return  # a view: the tensor has another geometry from here on
        storages = self.storages
        access = _Access()
        unmarked = tables.mutated_beyond_schema(name, arguments)
        for position, (argument, info) in enumerate(zip(arguments, schema)):
            written = position in unmarked or (
                info.alias_info is not None and info.alias_info.is_write
            )
            for tensor in tensors_in(argument):
                touched = storages.bytes_of(storages.value_of(tensor))
                if written:
                    access.add(access.mutates, touched)
                    if not isinstance(tensor, FakeTensor) and id(tensor) not in self.touched:
                        before_ = (tensor, tensor._version, tensor.requires_grad)
                        self.touched[id(tensor)] = before_
                else:
                    access.add(access.reads, touched)
        made: list[int] = []
        for tensor in tensors_in(outputs):
            if not has_storage(tensor):
                raise CaptureError(
                    f"the op makes a tensor of layout {tensor.layout}",
                    way_out="use dense tensors (for embeddings: sparse=False)",
                )
            storage = storages.find(tensor)
            if storage is None:
                made.append(storages.add_made(tensor, str(site)))
            elif storage in made:
                record = storages.records[storage]
                record.bytes = max(record.bytes, extent(tensor)[1])
        returned = outputs if isinstance(outputs, tuple) else (outputs,)
        results = [encode(value, "", storages.value_of) for value in returned]
        if not func._schema.returns:
            results = []
        node = torch._C._current_autograd_node()
        if node is not None and name in ("aten.detach.default", "aten.clone.default"):
            variable = getattr(node, "variable", None)
            if variable is not None:
                for tensor in tensors_in(outputs):
                    found = storages.find(tensor)
                    assert found is not None
                    self.gradients[found] = id(variable)
        collective = func.namespace in tables.COLLECTIVE_NAMESPACES
        if not made and not access.mutates and not collective and list(tensors_in(outputs)):
            return  # a view: its values are written down, the op is not
        if name == "aten.empty_like.default":
            # It looks at a tensor's geometry and at none of its bytes, which need not be there then.
            name, encoded, access = "aten.empty_strided.default", _allocation_of(outputs), _Access()
        access.settle()
        for storage in access.mutates:
            storages.records[storage].wrote = True
        self.ops.append(
            OpRecord(
                name,
                encoded,
                results,
                [(storage, *span) for storage, span in sorted(access.reads.items())],
                made,
                [(storage, *span) for storage, span in sorted(access.mutates.items())],
                uses_rng=torch.Tag.nondeterministic_seeded in func.tags,
                collective=collective,
                host_sync=False,
                site=site,
            )
        )

    def _check_fake(self, name: str, arguments: list[Any]) -> None:
        if self.fake_mode is not None and not isinstance(arguments[0], FakeTensor):
            raise CaptureError(
                f"{name} changes the shape of a tensor that is there before the step, in place",
                way_out="make a view instead: transpose() for transpose_(), and so on",
            )

    def add_copy(self, target: torch.Tensor, source: torch.Tensor, site: Site) -> None:
        """Records `target.copy_(source)`: a persistent tensor that the step replaced by a new one."""
        into, out_of = self.storages.value_of(target), self.storages.value_of(source)
        self.ops.append(
            OpRecord(
                "aten.copy_.default",
                [{"value": into}, {"value": out_of}, False],
                [{"value": into}],
                [self.storages.bytes_of(out_of)],
                [],
                [self.storages.bytes_of(into)],
                uses_rng=False,
                collective=False,
                host_sync=False,
                site=site,
            )
        )
        self.storages.records[self.storages.bytes_of(into)[0]].wrote = True


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    begin, end = extent(tensor)
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return whole.set_(tensor.untyped_storage(), begin, (end - begin,), (1,))


def _allocation_of(tensor: torch.Tensor) -> list[Any]:
    """The arguments with which `aten.empty_strided` allocates a tensor like this."""
    return [
        list(tensor.size()),
        list(tensor.stride()),
        {"dtype": dtype_name(tensor.dtype)},
        {"layout": "strided"},
        {"device": str(tensor.device)},
        False,
    ]


def _plain_number(value: Any) -> Any:
    node = node_of(value)
    if node is None:
        return value
    present = node.present()
    return node.type(1) if present is None else present


def _map_values(function: Callable[[Any], Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: map_leaves(function, value) for key, value in kwargs.items()}


__all__ = ["GuardRecord", "OpRecord", "Recorder", "StorageRecord", "dtype_name", "tensors_in"]
