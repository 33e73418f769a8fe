"""The tables of PyTorch's internals name every private name that the package uses, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lowtide
from lowtide._trust import internals
from private_names import is_private, used_by

PACKAGE = Path(lowtide.__file__).parent
# Private names of Python and NumPy, of named tuples, and what Lowtide marks its own functions with.
NOT_OF_TORCH = {
    "_Environ", "_asdict", "_bit_generator", "_fields", "_getframe", "_inst", "_lru_cache_wrapper",
    "_parse_exception_table", "_rand", "_replace",
}  # fmt: skip
LISTED = {name for table in internals.INTERNALS.values() for name in table}
LISTED_ATTRIBUTES = {*internals.OPTIONAL, *(name for names in internals.ATTRIBUTES.values() for name in names)}


def covers(listed: str, used: str) -> bool:
    """Whether a name is that of the table, or something public in it."""
    rest = used.removeprefix(listed)
    return not rest or (used.startswith(listed) and rest[0] == "." and not any(map(is_private, rest.split("."))))


def test_every_private_name_is_listed_and_used():
    names, attributes = used_by(PACKAGE)
    whole = {name for name in names if not any(other.startswith(f"{name}.") for other in names | dict.fromkeys(LISTED))}
    assert {name for name in whole if not any(covers(listed, name) for listed in LISTED)} == set()
    assert {listed for listed in LISTED if not any(covers(listed, name) for name in names)} == set()
    assert attributes - NOT_OF_TORCH - LISTED_ATTRIBUTES == set()
    text = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.parent.name != "_trust")
    assert {name for name in LISTED_ATTRIBUTES if name not in text} == set()


def test_all_of_them_are_there():
    internals.why_unknown.cache_clear()
    assert internals.why_unknown(*internals.INTERNALS) == ""


@pytest.fixture
def unchecked():
    internals.why_unknown.cache_clear()
    yield
    internals.why_unknown.cache_clear()


CHANGED = {
    "removed": ("torch._C", "_current_autograd_node", None, "there is no torch._C._current_autograd_node"),
    "of another form": ("torch.cuda", "_initialized", lambda: True, "_initialized is a function instead of a bool"),
    "with other arguments": ("torch.autograd", "_engine_run_backward", lambda outputs: (), "takes no t_outputs"),
    "of an object": (
        "torch.autograd.graph.Node",
        "_sequence_nr",
        None,
        "there is no torch.autograd.graph.Node._sequence_nr",
    ),
}


@pytest.mark.parametrize("how", CHANGED)
@pytest.mark.usefixtures("unchecked")
def test_what_was_changed_is_named(how, monkeypatch):
    owner, name, value, said = CHANGED[how]
    found = internals._find(owner)
    if value is None:
        monkeypatch.delattr(found, name)
    else:
        monkeypatch.setattr(found, name, value)
    assert said in internals.why_unknown("runtime")
    assert torch.__version__ in internals.why_unknown("runtime")
