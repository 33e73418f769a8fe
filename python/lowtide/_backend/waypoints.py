"""Places in a forward pass where little is alive, at which its recomputation can begin.

A minimum cut that may recompute everything does so from the inputs on, and has all of the forward pass at once in the
backward pass. With what is alive at a few waypoints saved, it recomputes one segment after the other:

    alive  |    __      __      __      __
           |  _|  |    |  |    |  |    |  |
           | |    |____|  |____|  |____|  |
           +-------^-------^-------^-------> the forward pass, by what is saved on the way

The first segments are the ones to recompute: when their turn comes in the backward pass, what the others have saved is
gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import fx

from .inductor_internals import get_node_storage, node_bytes


@dataclass(frozen=True, slots=True)
class _Storage:
    """What one call has made, and until which call the forward pass needs it."""

    name: str  # of the call
    nbytes: int
    made: int
    last_use: int


class Route:
    """A forward pass, by its storages."""

    def __init__(self, forward: fx.GraphModule) -> None:
        self._storages: list[_Storage] = []
        self._name_of: dict[str, str] = {}  # by node: the call that has made its storage
        calls = [node for node in forward.graph.nodes if node.op == "call_function"]
        self._length = len(calls)
        inputs = {get_node_storage(node) for node in forward.graph.find_nodes(op="placeholder")}
        of: dict[int, list[tuple[int, fx.Node]]] = {}
        for place, node in enumerate(calls):
            storage = get_node_storage(node)
            if storage is not None and storage not in inputs:
                of.setdefault(storage, []).append((place, node))
        places = {node: place for place, node in enumerate(calls)}
        for nodes in of.values():
            made, first = nodes[0]
            maker = first.all_input_nodes[0] if _is_item(first) else first
            uses = [places[user] for _, node in nodes for user in node.users if user in places]
            self._storages.append(_Storage(maker.name, node_bytes(first), made, max(uses, default=made)))
            self._name_of |= {node.name: maker.name for _, node in nodes}
        self._made = {storage.name: storage.made for storage in self._storages}

    def held(self, names: Iterable[str]) -> int:
        """Bytes of the storages of these nodes, but for those of inputs."""
        wanted = {self._name_of[name] for name in names if name in self._name_of}
        return sum(storage.nbytes for storage in self._storages if storage.name in wanted)

    def waypoints(self, saved: Iterable[str], segments: int) -> list[int]:
        """Places between segments that save about as much each, where as little as can be is alive."""
        alive = [0] * (self._length + 1)
        weights = [0] * self._length
        wanted = {self._name_of[name] for name in saved if name in self._name_of}
        for storage in self._storages:
            for place in range(storage.made, storage.last_use):
                alive[place] += storage.nbytes
            weights[storage.made] += storage.nbytes if storage.name in wanted else 0
        total, before = max(1, sum(weights)), 0
        best: dict[int, tuple[int, int]] = {}  # by waypoint, around where it would part evenly: bytes alive, and where
        for place, weight in enumerate(weights):
            before += weight
            nearest = (2 * before * segments + total) // (2 * total)
            if 0 < nearest < segments:
                best[nearest] = min(best.get(nearest, (alive[place], place)), (alive[place], place))
        return [place for _, (_, place) in sorted(best.items())]

    def alive_at(self, place: int) -> list[str]:
        """The calls whose results the forward pass still needs there."""
        return [storage.name for storage in self._storages if storage.made <= place < storage.last_use]

    def made_after(self, place: int, names: Iterable[str]) -> list[str]:
        """Those of the nodes' calls that come later."""
        wanted = {self._name_of[name] for name in names if name in self._name_of}
        return [name for name in self._made if name in wanted and self._made[name] > place]


def first_recomputed(route: Route, waypoints: Sequence[int], saved: Iterable[str]) -> tuple[str, ...]:
    """What to save, so that all before the last of the waypoints is computed again, and nothing else."""
    kept = {name for place in waypoints for name in route.alive_at(place)}
    return tuple(sorted(kept.union(route.made_after(waypoints[-1], saved))))


def _is_item(node: fx.Node) -> bool:
    """Whether it takes one of several results of a call."""
    return bool(node.all_input_nodes) and isinstance(node.all_input_nodes[0].meta.get("val"), tuple | list)
