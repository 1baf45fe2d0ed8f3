"""Training steps made up for benches: a CNN, a transformer, an LSTM and a U-Net at any batch, in float32.

    net = transformer(batch=8)
    net.file(machine)          # a graph with a profile inside, as the `outsize` command reads it

Each layer reads tensors and makes one; its backward op reads the gradient, what the layer read and
its weights, and makes their gradients; then SGD with momentum. Op times are the machine's roofline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """inputs, output: tensors by name. Sizes in bytes, flops of the forward op."""

    name: str
    inputs: tuple[str, ...]
    output: str
    flops: float
    weight_bytes: int = 0


@dataclass
class Net:
    """Tensors by name with their bytes (the input first), and layers in order; the last makes the loss."""

    title: str
    sizes: dict[str, int] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)

    def tensor(self, name: str, elements: float) -> str:
        self.sizes[name] = max(1, round(elements)) * ELEMENT_BYTES
        return name

    def layer(
        self, name: str, inputs: list[str], elements: float, flops: float, weights: float = 0
    ) -> str:
        output = self.tensor(name, elements)
        weight_bytes = round(weights) * ELEMENT_BYTES
        self.layers.append(Layer(name, tuple(inputs), output, flops, weight_bytes))
        return output

    def file(self, machine: dict[str, Any]) -> dict[str, Any]:
        """The graph, with op times on `machine` (a machine's JSON)."""
        return _Writer(self, machine).written()


class _Writer:
    def __init__(self, net: Net, machine: dict[str, Any]) -> None:
        self.net, self.machine = net, machine
        self.storages: list[dict[str, Any]] = []
        self.ids: dict[str, int] = {}
        self.ops: list[dict[str, Any]] = []
        self.times: list[int] = []

    def written(self) -> dict[str, Any]:
        net = self.net
        made = {layer.output for layer in net.layers}
        loss = net.layers[-1].output
        for name, size in net.sizes.items():
            if name not in made:
                self.storage(name, size, role="input", entry=True)
            elif name == loss:
                self.storage(name, size, role="output", exit=True)
            else:
                self.storage(name, size, role="activation")
        for layer in net.layers:
            if layer.weight_bytes:
                for kind, role in (("w", "parameter"), ("m", "optimizer_state")):
                    name = f"{kind}:{layer.name}"
                    self.storage(
                        name, layer.weight_bytes, role=role, entry=True, exit=True, persistent=True,
                        name=name,
                    )  # fmt: skip
        for layer in net.layers:
            reads = [*layer.inputs, *([f"w:{layer.name}"] if layer.weight_bytes else [])]
            self.op(layer.name, layer.flops, "forward", reads=reads, makes=[layer.output])
        self.backward(made, loss)
        for layer in net.layers:
            if layer.weight_bytes:
                at = layer.name
                self.op(
                    f"sgd:{at}", 0, "optimizer", reads=[f"dw:{at}"], mutates=[f"w:{at}", f"m:{at}"]
                )
        profile = {
            "format": "outsize-profile",
            "version": 1,
            "how": "roofline",
            "machine": self.machine["name"],
            "ops": [{"ns": ns} for ns in self.times],
        }
        return {
            "format": "outsize-graph",
            "version": 1,
            "title": net.title,
            "storages": self.storages,
            "ops": self.ops,
            "profile": profile,
        }

    def backward(self, made: set[str], loss: str) -> None:
        has_gradient: set[str] = set()
        for layer in reversed(self.net.layers):
            wanted = [name for name in dict.fromkeys(layer.inputs) if name in made]
            makes, mutates = [], []
            for name in wanted:
                gradient = f"g:{name}"
                if name in has_gradient:
                    mutates.append(gradient)
                    continue
                has_gradient.add(name)
                self.storage(gradient, self.net.sizes[name], role="gradient")
                makes.append(gradient)
            reads = list(dict.fromkeys(layer.inputs))
            reads.append(layer.output if layer.output == loss else f"g:{layer.output}")
            if layer.weight_bytes:
                self.storage(f"dw:{layer.name}", layer.weight_bytes, role="gradient")
                makes.append(f"dw:{layer.name}")
                reads.append(f"w:{layer.name}")
            flops = layer.flops * (2 if layer.weight_bytes else 1)
            self.op(
                f"{layer.name}_backward", flops, "backward",
                reads=reads, makes=makes, mutates=mutates,
            )  # fmt: skip

    def storage(self, key: str, size: int, **fields: Any) -> None:
        self.ids[key] = len(self.storages)
        self.storages.append({"bytes": size, **fields})

    def op(self, name: str, flops: float, phase: str, **touches: list[str]) -> None:
        moved = 0
        op: dict[str, Any] = {"name": name, "site": {"phase": phase}}
        for kind, names in touches.items():
            sizes = [self.storages[self.ids[one]]["bytes"] for one in names]
            op[kind] = [[self.ids[one], 0, size] for one, size in zip(names, sizes, strict=True)]
            moved += sum(sizes) * (2 if kind == "mutates" else 1)
        machine = self.machine
        rate = machine["flops_per_s"]["float32"] * machine["achieved_fraction"]
        seconds = max(flops / rate, moved / machine["memory_bytes_per_s"])
        self.ops.append(op)
        self.times.append(machine["launch_ns"] + math.ceil(seconds * 1e9))


def cnn(batch: int) -> Net:
    """A residual network: 4 stages of 4 blocks of two 3x3 convolutions, 64 to 512 channels, on 224 x 224."""
    net = Net(f"cnn-{batch}")
    x, width, side = net.tensor("x", batch * 3 * 224 * 224), 3, 56

    def conv(name: str, source: str, before: int, after: int, side: int) -> str:
        out = batch * after * side * side
        made = net.layer(name, [source], out, 2 * out * before * 9, before * after * 9)
        norm = net.layer(f"{name}.norm", [made], out, 8 * out, 2 * after)
        return net.layer(f"{name}.relu", [norm], out, out)

    x = conv("stem", x, width, 64, side)
    width = 64
    for stage in range(4):
        after = 64 << stage
        if stage:
            side //= 2
            x = conv(f"down{stage}", x, width, after, side)
        width = after
        for block in range(4):
            at = f"s{stage}b{block}"
            y = conv(f"{at}.1", x, width, width, side)
            y = conv(f"{at}.2", y, width, width, side)
            x = net.layer(f"{at}.add", [x, y], batch * width * side * side, batch * width * side**2)
    net.layer("loss", [x], 1, 2 * batch * width * 1000, width * 1000)
    return net


def transformer(batch: int) -> Net:
    """12 layers of 768, 12 heads, 512 tokens, attention matrices kept; 32,000 words."""
    net = Net(f"transformer-{batch}")
    tokens, hidden, length, heads = batch * 512, 768, 512, 12
    scores = batch * heads * length * length
    x = net.tensor("x", tokens * hidden)
    x = net.layer("embed", [x], tokens * hidden, tokens * hidden, hidden)
    for i in range(12):
        one = tokens * hidden

        def dense(name: str, source: str, before: int, after: int) -> str:
            return net.layer(
                name, [source], tokens * after, 2 * tokens * before * after, before * after
            )

        norm = net.layer(f"{i}.norm1", [x], one, 8 * one, 2 * hidden)
        qkv = dense(f"{i}.qkv", norm, hidden, 3 * hidden)
        raw = net.layer(f"{i}.scores", [qkv], scores, 2 * scores * hidden / heads)
        soft = net.layer(f"{i}.softmax", [raw], scores, 5 * scores)
        mixed = net.layer(f"{i}.mix", [soft, qkv], one, 2 * scores * hidden / heads)
        y = net.layer(f"{i}.add1", [x, dense(f"{i}.proj", mixed, hidden, hidden)], one, one)
        norm = net.layer(f"{i}.norm2", [y], one, 8 * one, 2 * hidden)
        up = dense(f"{i}.up", norm, hidden, 4 * hidden)
        act = net.layer(f"{i}.gelu", [up], 4 * one, 32 * one)
        x = net.layer(f"{i}.add2", [y, dense(f"{i}.down", act, 4 * hidden, hidden)], one, one)
    words = net.layer("head", [x], tokens * 32000, 2 * tokens * hidden * 32000, hidden * 32000)
    net.layer("loss", [words], 1, 5 * tokens * 32000)
    return net


def lstm(batch: int) -> Net:
    """4 layers of 2,048 over 64 steps; each step's gates, cell and output are tensors."""
    net = Net(f"lstm-{batch}")
    hidden, state = 2048, batch * 2048
    rows = [net.tensor(f"x{t}", state) for t in range(64)]
    for i in range(4):
        outputs: list[str] = []
        cell = ""
        weights = 8 * hidden * hidden
        joined = net.layer(f"l{i}.bias", [rows[0]], state, state, weights)
        for t, row in enumerate(rows):
            inputs = [row, outputs[-1] if outputs else joined]
            gates = net.layer(f"l{i}t{t}.gates", inputs, 4 * state, 2 * batch * weights)
            cell = net.layer(f"l{i}t{t}.cell", [gates, *([cell] if cell else [])], state, 8 * state)
            outputs.append(net.layer(f"l{i}t{t}.out", [gates, cell], state, 4 * state))
        rows = outputs
    net.layer("loss", rows, 1, 64 * state)
    return net


def unet(batch: int) -> Net:
    """4 levels down and up with skips, two 3x3 convolutions each, 64 to 1,024 channels, on 256 x 256."""
    net = Net(f"unet-{batch}")

    def conv(name: str, sources: list[str], before: int, after: int, side: int) -> str:
        out = batch * after * side * side
        made = net.layer(name, sources, out, 2 * out * before * 9, before * after * 9)
        return net.layer(f"{name}.relu", [made], out, out)

    x, before, skips = net.tensor("x", batch * 3 * 256 * 256), 3, []
    for level in range(4):
        side, after = 256 >> level, 64 << level
        x = conv(f"d{level}.1", [x], before, after, side)
        x = conv(f"d{level}.2", [x], after, after, side)
        skips.append(x)
        half = batch * after * (side // 2) ** 2
        x, before = net.layer(f"d{level}.pool", [x], half, 4 * half), after
    x = conv("bottom.1", [x], before, 1024, 16)
    x = conv("bottom.2", [x], 1024, 1024, 16)
    before = 1024
    for level in reversed(range(4)):
        side, after = 256 >> level, 64 << level
        x = conv(f"u{level}.up", [x], before, after, side)
        x = conv(f"u{level}.1", [x, skips[level]], 2 * after, after, side)
        x, before = conv(f"u{level}.2", [x], after, after, side), after
    net.layer("loss", [x], 1, 2 * batch * 256 * 256 * 64, 64)
    return net


NETS: dict[str, Callable[[int], Net]] = {
    "cnn": cnn,
    "transformer": transformer,
    "lstm": lstm,
    "unet": unet,
}
