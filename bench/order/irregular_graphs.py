"""Networks with irregular wiring as graphs: cells as architecture search finds them, and random wirings.

    graph = make("nas", 200, seed=7, training=True)

A graph is a pure function of family, size, seed and whether it trains. Families:

    nas              cells as of NASNet, AmoebaNet and DARTS: five blocks, each the sum of two branches from earlier
                     blocks or from the two cells before; what no block uses is concatenated
    erdos_renyi      RandWire (Xie et al. 2019): three stages of nodes; a node sums its inputs, then relu, a separable
    barabasi_albert  convolution and a batch norm. Wired as the random graphs of that name, from lower to higher
    watts_strogatz   numbers; with the parameters that RandWire found best

Weights are resident. A step that trains also has, for each layer, an op that makes the gradients of its input and its
weight from what PyTorch's layers keep for that; sums where several layers used one output; and an update for each
weight. Gradients are planned.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from lowtide import Graph
from lowtide._core import GraphBuilder

CHANNELS = 32
SIDE = 56
BATCH = 8
FLOAT = 4
BLOCKS = 5  # of a cell
CELLS_PER_STAGE = 2
STAGES = 3


class Keeps(Enum):
    """What a layer's backward pass reads besides the gradient of its output."""

    INPUTS = "inputs"
    OUTPUT = "output"
    NOTHING = "nothing"  # and gives that gradient, or a part of it, as it is


@dataclass(frozen=True)
class Shape:
    """Of an activation: channels, and the side of a square."""

    channels: int
    side: int

    @property
    def bytes(self) -> int:
        return BATCH * self.channels * self.side**2 * FLOAT


@dataclass(frozen=True)
class Layer:
    """An op of the forward pass. Inputs are numbers of layers."""

    name: str
    inputs: tuple[int, ...]
    shape: Shape
    keeps: Keeps
    weight_bytes: int = 0


@dataclass
class Network:
    """Layers, each behind its inputs. The first is the input of all."""

    layers: list[Layer] = field(default_factory=lambda: [Layer("input", (), Shape(CHANNELS, SIDE), Keeps.NOTHING)])

    def add(self, name: str, inputs: tuple[int, ...], shape: Shape, keeps: Keeps, weight: int = 0) -> int:
        self.layers.append(Layer(name, inputs, shape, keeps, weight * FLOAT))
        return len(self.layers) - 1

    def shape(self, layer: int) -> Shape:
        return self.layers[layer].shape

    def sum(self, layers: list[int]) -> int:
        return self.add("add", tuple(layers), self.shape(layers[0]), Keeps.NOTHING) if len(layers) > 1 else layers[0]

    def separable(self, layer: int, shape: Shape, kernel: int = 3) -> int:
        """Relu, a convolution of each channel, one across channels, and a batch norm."""
        before = self.shape(layer)
        between = Shape(before.channels, shape.side)
        at = self.add("relu", (layer,), before, Keeps.OUTPUT)
        at = self.add("depthwise", (at,), between, Keeps.INPUTS, before.channels * kernel**2)
        return self.pointwise(at, shape)

    def pointwise(self, layer: int, shape: Shape) -> int:
        """A convolution across channels and a batch norm."""
        at = self.add("pointwise", (layer,), shape, Keeps.INPUTS, self.shape(layer).channels * shape.channels)
        return self.add("batch_norm", (at,), shape, Keeps.INPUTS, 2 * shape.channels)


def make(family: str, size: int, seed: int, *, training: bool) -> Graph:
    """The smallest such network with at least `size` ops."""
    for extent in range(1, size + 1):
        graph = _to_graph(FAMILIES[family](extent, random.Random(f"{family} {seed}")), training=training)
        if graph.num_ops >= size:
            return graph
    raise AssertionError("a network has an op for each of its parts")


# -- cells -------------------------------------------------------------------------------------------------------------


def _nas(cells: int, chance: random.Random) -> Network:
    network = Network()
    before = last = 0
    shape = network.shape(0)
    wiring = {
        reduce: _random_cell(chance) for reduce in (False, True)
    }  # as in the papers, all cells of a kind are alike
    for cell in range(cells):
        reduce = cell % (CELLS_PER_STAGE + 1) == CELLS_PER_STAGE
        if reduce:
            shape = Shape(2 * shape.channels, max(1, shape.side // 2))
        before, last = last, _add_cell(network, wiring[reduce], before, last, shape)
    return network


Branch = tuple[str, int]  # what it does, and from which state: 0 and 1 are the two cells before


def _random_cell(chance: random.Random) -> list[tuple[Branch, Branch]]:
    kinds = ("separable_3", "separable_5", "pool", "identity")

    def branch(block: int) -> Branch:
        return chance.choice(kinds), chance.randrange(block + 2)

    return [(branch(block), branch(block)) for block in range(BLOCKS)]


def _add_cell(network: Network, wiring: list[tuple[Branch, Branch]], before: int, last: int, shape: Shape) -> int:
    states = [_fitted(network, before, shape), _fitted(network, last, shape)]
    used: set[int] = set()
    for branches in wiring:
        states.append(network.sum([_add_branch(network, kind, states[state], shape) for kind, state in branches]))
        used |= {state for _, state in branches}
    loose = [state for number, state in enumerate(states) if number >= 2 and number not in used]
    wide = Shape(shape.channels * len(loose), shape.side)
    return network.add("cat", tuple(loose), wide, Keeps.NOTHING)


def _fitted(network: Network, layer: int, shape: Shape) -> int:
    at = network.add("relu", (layer,), network.shape(layer), Keeps.OUTPUT)
    return network.pointwise(at, shape)


def _add_branch(network: Network, kind: str, layer: int, shape: Shape) -> int:
    match kind:
        case "separable_3":
            return network.separable(network.separable(layer, shape), shape)
        case "separable_5":
            return network.separable(network.separable(layer, shape, 5), shape, 5)
        case "pool":
            return network.add("pool", (layer,), shape, Keeps.INPUTS)
        case _:
            return layer


# -- random wirings ----------------------------------------------------------------------------------------------------

Pairs = set[tuple[int, int]]  # from lower to higher numbers


def _erdos_renyi(nodes: int, chance: random.Random) -> Pairs:
    """Each pair with the probability 0.2."""
    return {(a, b) for b in range(nodes) for a in range(b) if chance.random() < 0.2}


def _barabasi_albert(nodes: int, chance: random.Random) -> Pairs:
    """Each node to five earlier ones, which are chosen the more often the more neighbours they have."""
    pairs: Pairs = set()
    ends: list[int] = []  # each node as often as it has neighbours
    for node in range(1, nodes):
        chosen: set[int] = set()
        while len(chosen) < min(5, node):
            chosen.add(chance.choice(ends) if ends and chance.random() < 0.9 else chance.randrange(node))
        pairs |= {(other, node) for other in chosen}
        ends += [end for other in sorted(chosen) for end in (other, node)]
    return pairs


def _watts_strogatz(nodes: int, chance: random.Random) -> Pairs:
    """A ring in which each node knows the two on either side; three of four edges then lead somewhere else."""
    pairs: Pairs = set()
    for node in range(nodes):
        for step in (1, 2):
            other = (node + step) % nodes
            if chance.random() < 0.75:
                other = chance.randrange(nodes)
            if other != node:
                pairs.add((min(node, other), max(node, other)))
    return pairs


def _wired(wire: Callable[[int, random.Random], Pairs]) -> Callable[[int, random.Random], Network]:
    def make_network(nodes: int, chance: random.Random) -> Network:
        network = Network()
        last = 0
        for stage in range(STAGES):
            shape = Shape(CHANNELS << stage, SIDE >> stage)
            pairs = sorted(wire(nodes, chance))
            made: list[int] = []
            for node in range(nodes):
                inputs = [made[a] for a, b in pairs if b == node]
                made.append(network.separable(network.sum(inputs) if inputs else last, shape))
            last = network.sum([made[node] for node in range(nodes) if all(a != node for a, _ in pairs)])
        return network

    return make_network


FAMILIES: dict[str, Callable[[int, random.Random], Network]] = {
    "nas": _nas,
    "erdos_renyi": _wired(_erdos_renyi),
    "barabasi_albert": _wired(_barabasi_albert),
    "watts_strogatz": _wired(_watts_strogatz),
}


# -- graphs ------------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes a network into a graph, one op after the other."""

    def __init__(self, network: Network) -> None:
        self._builder = GraphBuilder()
        self._layers = network.layers
        batch = self._resident("input", network.shape(0).bytes, "input")
        self._outputs = [self._value(batch)]  # by layer: a value
        self._weights: dict[int, int] = {}  # by layer: a buffer
        self._gradients: dict[int, list[int]] = {}  # by layer: values, one from each layer that used its output

    def forward(self) -> None:
        for number, layer in enumerate(self._layers[1:], start=1):
            reads = [self._outputs[source] for source in layer.inputs]
            if layer.weight_bytes:
                self._weights[number] = self._resident(f"{layer.name} {number}", layer.weight_bytes, "parameter")
                reads.append(self._value(self._weights[number]))
            self._outputs.append(self._op(layer.name, reads, layer.shape.bytes))

    def backward(self) -> None:
        last = len(self._layers) - 1
        self._gradients[last] = [self._op("loss", [self._outputs[last]], self._layers[last].shape.bytes)]
        for number in range(last, 0, -1):
            if number in self._gradients:
                self._backward_of(number)

    def keep_last(self) -> None:
        self._builder.keep(self._last_buffer)

    def build(self) -> Graph:
        return self._builder.build()

    def _backward_of(self, number: int) -> None:
        layer = self._layers[number]
        gradient = self._summed(number)
        if layer.keeps is Keeps.NOTHING:
            for source in layer.inputs:
                self._gradients.setdefault(source, []).append(gradient)
            return
        source = layer.inputs[0]
        reads = [gradient, self._outputs[number if layer.keeps is Keeps.OUTPUT else source]]
        writes = []
        if source > 0:
            writes.append(self._buffer("gradient", self._layers[source].shape.bytes))
        if layer.weight_bytes:
            reads.append(self._value(self._weights[number]))
            writes.append(self._buffer("weight gradient", layer.weight_bytes))
        self._builder.op(f"{layer.name}_backward", reads, writes)
        if source > 0:
            self._gradients.setdefault(source, []).append(self._value(writes[0]))
        if layer.weight_bytes:
            self._builder.op("update", [self._value(writes[-1])], [self._weights[number]], mutating=True)

    def _summed(self, number: int) -> int:
        first, *others = self._gradients[number]
        for other in others:
            first = self._op("accumulate", [first, other], self._layers[number].shape.bytes)
        return first

    def _op(self, name: str, reads: list[int], size: int) -> int:
        self._last_buffer = self._buffer(name, size)
        self._builder.op(name, list(dict.fromkeys(reads)), [self._last_buffer])
        return self._value(self._last_buffer)

    def _buffer(self, name: str, size: int) -> int:
        return self._builder.buffer(size, resident=False, initial=False, role="activation", name=name)

    def _resident(self, name: str, size: int, role: str) -> int:
        return self._builder.buffer(size, resident=True, initial=True, role=role, name=name)

    def _value(self, buffer: int) -> int:
        return self._builder.value(buffer, "float32", [])


def _to_graph(network: Network, *, training: bool) -> Graph:
    writer = _Writer(network)
    writer.forward()
    if training:
        writer.backward()
    else:
        writer.keep_last()
    return writer.build()
