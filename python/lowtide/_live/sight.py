"""What the step function's own Python can see, as far as a walk of some milliseconds goes.

Its tensor work is deferred, and its Python runs at once. Two things would tell it so: the class of what stands in for a
tensor, and memory that it reads past PyTorch before the program has written it. Where either is in sight, the step is
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .._guards import places
from .._guards.exposed import Range, first_shared, is_exposed, range_of, usual_classes
from .._guards.places import Path
from .._guards.surroundings import Surroundings
from .._guards.walk import ANY, Walk, refuse_type_questions
from ..errors import CaptureError
from .log import Written

_MOST_PLACES = 10_000
_MOST_VARIABLES = 64  # that are looked at again at each call


class Exposed(NamedTuple):
    """Memory in sight: by what it is read. The value itself is not kept."""

    path: Path
    kind: str
    memory: Range | None

    @staticmethod
    def of(path: Path, value: Any) -> Exposed:
        """That of a value."""
        return Exposed(path, type(value).__qualname__, range_of(value))


class Sight:
    """What a function can see, as of the last recording, and memory that comes into sight afterwards."""

    def __init__(
        self, function: Callable[..., Any], model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        self._function = function
        self._model = model
        self._optimizers = optimizers
        self._exposed: list[Exposed] = []
        self._variables: list[places.Place] = []
        self._classes = usual_classes()
        self._known: dict[int, tuple[int, Exposed]] = {}  # memory in variables that has been looked at

    def refuse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Looks around. Raises `CaptureError` if the function sees what it must not."""
        walk = self._walk()
        refuse_type_questions(walk)
        self._classes = usual_classes()
        self._variables = [place for place in walk.places if type(place) in _VARIABLES][:_MOST_VARIABLES]
        given = [*enumerate(args, 1), *kwargs.items()]
        in_arguments = [Exposed.of(Path(f"argument {name}"), value) for name, value in given if is_exposed(value)]
        self._exposed = walk.exposed + in_arguments
        for one in self._exposed:
            _refuse_shared(one, self._written())

    def refuse_writes(self, writes: Written, outside: Sequence[torch.Tensor], modules: Surroundings) -> None:
        """Raises `CaptureError` if a call writes what the function sees past PyTorch, from outside or of modules."""
        if not self._exposed:
            return
        written = [("a tensor", outside[number]) for number in writes.outside]
        written += [("a tensor", one) for one in modules.tensors if _storage(one) in writes.elsewhere]
        for one in self._exposed:
            _refuse_shared(one, iter(written))

    def has_changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether memory that the step writes has come into sight, in variables and arguments."""
        classes = self._classes
        for index, place in enumerate(self._variables):
            value = place.target.get(place.key) if type(place) is places.Variable else _content(place.target)
            if type(value) in classes and self._is_shared(index, place.path, value):
                return True
        for number, value in enumerate((*args, *kwargs.values()), 1):
            if type(value) in classes and self._is_shared(-number, _ARGUMENT, value):
                return True
        return False

    def _is_shared(self, where: int, path: Path, value: Any) -> bool:
        seen = (id(value), Exposed.of(path, value))
        if self._known.get(where) == seen:
            return False
        if _shared(seen[1], self._written()):
            return True
        self._known[where] = seen
        return False

    def _walk(self) -> _FunctionWalk:
        names: set[str] = {"forward"}
        while True:  # until no code brings up a name that was not known
            count = len(names)
            walk = _FunctionWalk(self._model, self._optimizers, names, everything=False)
            walk.start(self._function)
            if len(names) == count:
                return walk

    def _written(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What steps write."""
        for name, parameter in self._model.named_parameters():
            yield name, parameter
            if parameter.grad is not None:
                yield f"the gradient of {name}", parameter.grad
        yield from self._model.named_buffers()
        for optimizer in self._optimizers:
            for state in list(optimizer.state.values()):
                values = state.items() if isinstance(state, dict) else ()
                yield from ((f"an optimizer's {key}", one) for key, one in values if isinstance(one, torch.Tensor))


class _FunctionWalk(Walk):
    """From the function alone: of modules what the code names, of tensors only their attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.exposed: list[Exposed] = []

    def _is_full(self) -> bool:
        return len(self.places) > _MOST_PLACES

    def _tensor(self, tensor: torch.Tensor, path: Path) -> None:
        if vars(tensor):
            self._mapping(vars(tensor), path, 1, True, owner=tensor)

    def _module(self, module: torch.nn.Module, path: Path) -> None:
        attributes = vars(module)
        named = attributes.keys() if ANY in self.names else self.names & attributes.keys()
        for name in sorted(named - _TABLES):
            self._meet(attributes[name], path.attribute(name), 1, False)
        for name, child in (attributes.get("_modules") or {}).items():
            self._meet(child, path.attribute(name), 0, False)
        if self._is_users_class(type(module)):
            self._class(type(module), path)

    def _instance(self, value: Any, path: Path, depth: int, whole: bool) -> None:
        if is_exposed(value):
            self.exposed.append(Exposed.of(path, value))
        elif not isinstance(value, torch.amp.GradScaler):
            super()._instance(value, path, depth, whole)


_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
_ARGUMENT = Path("an argument")
_VARIABLES = (places.Variable, places.Cell)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value
        return None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def _shared(one: Exposed, written: Iterator[tuple[str, torch.Tensor]]) -> str:
    return "" if one.memory is None else first_shared(one.memory, written)


def _refuse_shared(one: Exposed, written: Iterator[tuple[str, torch.Tensor]]) -> None:
    name = _shared(one, written)
    if name:
        raise CaptureError(
            f"the step function can read {one.path}, a {one.kind} that shares memory with {name}: what it finds there "
            "may be from before the step; let it read the tensor"
        )
