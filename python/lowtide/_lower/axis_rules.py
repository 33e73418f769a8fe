"""The notation of axes in the table of operators (src/ops), read: which dimensions of which operands run together.

    rules_of(torch.ops.aten.mm.default)    "mk,kn->mn": m, n, and k, along which the parts of the result are summed

`include/lowtide/ops.h` says what the notation means.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from .. import _core

Label = str | int | None
"""Of a dimension: a letter; a place in `...`, from its end; none, if it is not cut."""

_TERM = re.compile(r"([a-z_]*)(\.\.\.|\*|)([a-z_]*)")
_FOREACH = "aten::_foreach_"
_GUARD = re.compile(r"(\w+)(?:\[(\d+)\])?=(.+)")


class Term(NamedTuple):
    """What the dimensions of one operand are called."""

    head: str
    middle: str  # "...", "*" or nothing
    tail: str

    def inside(self, rank: int) -> int:
        """How many dimensions of a tensor of `rank` are those of `...`."""
        return max(0, rank - len(self.head) - len(self.tail)) if self.middle == "..." else 0

    def labels(self, rank: int, dots: Sequence[Label]) -> Sequence[Label] | None:
        """Of a tensor of `rank`, if it can have so many dimensions; `dots` are the most that `...` stands for."""
        letters = [None if letter == "_" else letter for letter in self.head + self.tail]
        inside = rank - len(letters)
        if inside <= 0:
            return letters[-inside:]
        if not self.middle or self.inside(rank) > len(dots):
            return None
        middle = [None] * inside if self.middle == "*" else dots[len(dots) - inside :]
        return [*letters[: len(self.head)], *middle, *letters[len(self.head) :]]


class Guard(NamedTuple):
    """The rule is one of calls whose argument, or the item of it, is this."""

    argument: str
    item: int | None
    value: Any

    def holds(self, arguments: Mapping[str, Any]) -> bool:
        found = arguments.get(self.argument)
        if self.item is not None:
            found = found[self.item] if isinstance(found, Sequence) else None
        return bool(found == self.value)


class Rule(NamedTuple):
    """One line of an operator's notation. Words after semicolons name arguments, whose values decide."""

    guards: tuple[Guard, ...] = ()
    operands: tuple[Term, ...] | None = None  # none: all are like the result, or broadcast
    results: tuple[Term, ...] = ()
    whole: tuple[str, ...] = ()  # dimensions that are not cut
    last: tuple[str, ...] = ()  # as many of the last dimensions as this list has items are not cut
    pads: tuple[str, ...] = ()  # nor those that are padded
    sums: tuple[str, ...] = ()  # dimensions that are summed away: which, and whether they stay with size 1
    drops: tuple[str, ...] = ()  # the same, but no sum of parts
    inserts: tuple[str, ...] = ()  # a dimension that results have and operands do not
    once: tuple[str, ...] = ()  # what counts in one part of a sum and is left out in the others
    sizes: tuple[tuple[str, Term], ...] = ()  # arguments that are sizes of dimensions
    blocks: tuple[str, ...] = ()  # letters whose dimensions may differ in size, each in as many blocks
    strict: bool = False  # dimensions of size 1 are not broadcast
    dense: tuple[str, ...] | bool = ()  # operands, or all, of which parts must be without gaps in memory


POINTWISE = Rule(results=(Term("", "...", ""),))


def parse_rules(notation: str) -> tuple[Rule, ...]:
    """All lines of an operator's notation."""
    return tuple(_parse_rule(line) for line in notation.split("|")) if notation else ()


@cache
def rules_of(target: torch._ops.OpOverload) -> tuple[Rule, ...]:
    """Those of its row; of `add_` those of `add`. An operator that PyTorch calls pointwise needs none.

    What `_foreach_add` does with lists of tensors, `add` does with each.
    """
    if torch.Tag.pointwise in target.tags:
        return (POINTWISE,)
    name = target._schema.name
    notation = _core.op_row(name).axes or _core.op_row(name.removesuffix("_")).axes
    if name.startswith(_FOREACH) and _only_lists(target):
        stem = name.removeprefix(_FOREACH).removesuffix("_")
        return (POINTWISE._replace(strict=True),) if _core.op_row(f"aten::{stem}").axes == "..." else ()
    return parse_rules(notation)


def _only_lists(target: torch._ops.OpOverload) -> bool:
    types = [str(argument.type) for argument in target._schema.arguments]
    return all("List" in each for each in types if "Tensor" in each)


def _parse_rule(line: str) -> Rule:
    body, *clauses = (part.strip() for part in line.split(";"))
    guards, _, terms = body.rpartition(":")
    rule = Rule(tuple(map(_parse_guard, guards.split())))
    if terms.strip() == "...":
        rule = rule._replace(results=POINTWISE.results)
    else:
        operands, _, results = terms.partition("->")
        rule = rule._replace(operands=_parse_terms(operands) if operands.strip() else (), results=_parse_terms(results))
    words: dict[str, Any] = {}
    for clause in clauses:
        word, *names = clause.split()
        words[word] = tuple(names) or True
    if "sizes" in words:
        pairs = (name.split("=") for name in words["sizes"])
        words["sizes"] = tuple((argument, _parse_term(term)) for argument, term in pairs)
    return rule._replace(**words)


def _parse_guard(text: str) -> Guard:
    match = _GUARD.fullmatch(text)
    assert match is not None, text
    argument, index, value = match.groups()
    return Guard(argument, None if index is None else int(index), ast.literal_eval(value))


def _parse_terms(text: str) -> tuple[Term, ...]:
    return tuple(map(_parse_term, text.split(",")))


def _parse_term(text: str) -> Term:
    match = _TERM.fullmatch(text.strip())
    assert match is not None, text
    return Term(*match.groups())
