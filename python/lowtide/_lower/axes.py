"""Along which axes an operator may run in parts.

    for axis in axes_of(operator):
        part_of(operator, axis, 0, 4)    # parts.py

What each operator allows is in the table of operators (src/ops); here that is held against a call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import torch

from .._base.schemas import DEFAULT
from .._capture.recorder import Ref, is_pure
from .axis_rules import Label, Rule, Term, rules_of
from .lowering import Operator, is_effect, is_random

Place = int | tuple[int, int]
"""Of an argument: its position in the schema, or that and the position in a list."""

Constant = Literal["size", "once"]
"""A size is divided by the number of parts; what counts once, parts after the first have as 0 or None."""


class Axis(NamedTuple):
    """One way to run an operator in parts."""

    extent: int  # parts are equal: there may be n if n divides this
    arguments: Mapping[Place, int]  # the dimension of each tensor that is cut; others are whole
    results: tuple[int | None, ...]  # the dimension of each result; None: the results of the parts are summed
    constants: Mapping[Place, Constant]  # how other arguments differ from part to part


def axes_of(operator: Operator) -> list[Axis]:
    """All that are longer than 1; none of an operator that must run whole."""
    if is_effect(operator) or not is_pure(operator.target) or is_random(operator):
        return []
    found: list[Axis] = []
    for rule in rules_of(operator.target):
        found += [axis for axis in _Match(rule, operator).axes() if axis not in found]
    return found


class _Schema(NamedTuple):
    positions: dict[str, int]  # of arguments, by name
    tensors: list[int]  # positions of tensors and lists of them
    defaults: list[Any]


@cache
def _schema_of(target: torch._ops.OpOverload) -> _Schema:
    arguments = target._schema.arguments
    return _Schema(
        {argument.name: index for index, argument in enumerate(arguments)},
        [index for index, argument in enumerate(arguments) if "Tensor" in str(argument.type)],
        [argument.default_value for argument in arguments],
    )


class _Sizes(NamedTuple):
    """Of a tensor, or an argument that is sizes."""

    term: Term
    places: Sequence[Place]  # of each size
    sizes: Sequence[int]


def _dots_of(shapes: Sequence[_Sizes]) -> int:
    """How many dimensions `...` stands for."""
    return max((each.term.inside(len(each.sizes)) for each in shapes), default=0)


class _Use(NamedTuple):
    """A dimension that has a label."""

    kind: str  # argument, result, size
    place: Place
    dim: int
    size: int


class _Match:
    """A rule, held against a call."""

    def __init__(self, rule: Rule, operator: Operator) -> None:
        schema = _schema_of(operator.target)
        self.rule = rule
        self.operator = operator
        self.position = schema.positions
        self.tensors = schema.tensors
        self.named: dict[str, Any] = {
            name: schema.defaults[index] if operator.arguments[index] is DEFAULT else operator.arguments[index]
            for name, index in schema.positions.items()
        }

    def axes(self) -> Iterator[Axis]:
        """Those of this rule; none if it is not for such calls."""
        operands, results = self._operands(), self._results()
        if operands is None or results is None or not all(guard.holds(self.named) for guard in self.rule.guards):
            return
        sizes = self._sizes()
        dots = range(-(_dots_of(operands) or _dots_of(sizes)), 0)
        left = self._left_in_results(dots)
        uses: dict[Label, list[_Use]] = {}
        for kind, shapes, names in (("argument", operands, dots), ("result", results, left), ("size", sizes, left)):
            for term, places, shape in shapes:
                labels = term.labels(len(shape), names)
                if labels is None:
                    return
                for dim, label in enumerate(labels):
                    uses.setdefault(label, []).append(_Use(kind, places[dim], dim, shape[dim]))
        whole = self._whole(dots) | {None}
        for label in uses:
            axis = None if label in whole else self._axis(label, uses[label])
            if axis is not None:
                yield axis

    def _operands(self) -> list[_Sizes] | None:
        terms = self.rule.operands
        if terms is None:
            terms = self.rule.results * len(self.tensors)
        if len(terms) != len(self.tensors):
            return None
        found: list[_Sizes] = []
        for term, position in zip(terms, self.tensors, strict=True):
            argument = self.operator.arguments[position]
            items = argument if isinstance(argument, list) else [argument]
            for index, item in enumerate(items):
                if isinstance(item, Ref):
                    place = (position, index) if isinstance(argument, list) else position
                    found.append(_Sizes(term, [place] * len(item.sizes), item.sizes))
        return found

    def _results(self) -> list[_Sizes] | None:
        terms, results = self.rule.results, self.operator.results
        if self.rule.operands is None:
            terms = terms * len(results)
        if len(terms) < len(results):
            return None
        pairs = enumerate(zip(terms, results, strict=False))
        return [_Sizes(term, [index] * len(ref.sizes), ref.sizes) for index, (term, ref) in pairs if ref is not None]

    def _sizes(self) -> list[_Sizes]:
        found: list[_Sizes] = []
        for name, term in self.rule.sizes:
            position, value = self.position[name], self.named[name]
            if isinstance(value, list):
                found.append(_Sizes(term, [(position, index) for index in range(len(value))], value))
            elif isinstance(value, int):
                found.append(_Sizes(term, [position], [value]))
        return found

    def _dims(self, name: str, rank: int) -> set[int]:
        """The dimensions that an argument names, counted from the last one; all if it names none."""
        given = self.named.get(name)
        named = [given] if isinstance(given, int) else given
        return {dim if dim < 0 else dim - rank for dim in named or range(rank)}

    def _whole(self, dots: range) -> set[Label]:
        whole: set[Label] = set()
        for name in (*self.rule.whole, *self.rule.drops[:1]):
            whole |= self._dims(name, len(dots))
        for name in self.rule.last:
            whole |= set(range(-len(self.named[name]), 0))
        for name in self.rule.pads:  # from the last dimension on, two numbers for each
            whole |= {-1 - index // 2 for index, pad in enumerate(self.named[name]) if pad}
        return whole

    def _left_in_results(self, dots: range) -> list[Label]:
        """What `...` stands for there."""
        left: list[Label] = list(dots)
        for name, keep in (words for words in (self.rule.sums, self.rule.drops) if words):
            reduced = self._dims(name, len(dots))
            kept = bool(self.named.get(keep))
            left = [None if dim in reduced else dim for dim in dots if kept or dim not in reduced]
        for name in self.rule.inserts:
            left.insert(self.named[name] % (len(dots) + 1), None)
        return left

    def _axis(self, label: Label, uses: list[_Use]) -> Axis | None:
        """An operand of size 1 is broadcast: whole; all else must be as long as the axis."""
        cut = [use for use in uses if use.size != 1 or use.kind != "argument" or self.rule.strict]
        extent = math.gcd(*(use.size for use in cut))
        equal = all(use.size == extent for use in cut) or label in self.rule.blocks
        if extent < 2 or not equal:
            return None
        arguments = {use.place: use.dim for use in cut if use.kind == "argument"}
        if not all(_parts_are_dense(self._ref(place), arguments[place]) for place in self._dense(arguments)):
            return None
        dims = {use.place: use.dim for use in cut if use.kind == "result"}
        results = tuple(dims.get(index) for index in range(len(self.operator.results)))
        tensors = {index for index, ref in enumerate(self.operator.results) if ref is not None}
        if self.rule.operands is None and not tensors <= dims.keys():
            return None  # each has operands of its own, and some of another rank
        constants: dict[Place, Constant] = {use.place: "size" for use in cut if use.kind == "size"}
        if not dims:
            constants |= {self.position[name]: "once" for name in self.rule.once if self.named[name] is not None}
        return Axis(extent, arguments, results, constants)

    def _dense(self, places: Iterable[Place]) -> Iterable[Place]:
        """Which of these must be dense in parts."""
        if isinstance(self.rule.dense, bool):
            return places if self.rule.dense else ()
        named = {self.position[name] for name in self.rule.dense}
        return [place for place in places if place in named]

    def _ref(self, place: Place) -> Ref:
        arguments = self.operator.arguments
        found = arguments[place] if isinstance(place, int) else arguments[place[0]][place[1]]
        assert isinstance(found, Ref)
        return found


def _parts_are_dense(ref: Ref, dim: int) -> bool:
    """Whether each part is a stretch of memory without gaps."""
    count = math.prod(ref.sizes)
    return ref.sizes[dim] * ref.strides[dim] == count == ref.extent() // ref.dtype.itemsize
