"""The stubs of the extensions name what is there: every class, member, function and argument, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lowtide
from lowtide import _core, _torch

MODULES = {"_core": _core, "_torch": _torch}


def stub(name: str) -> ast.Module:
    return ast.parse((Path(lowtide.__file__).parent / f"{name}.pyi").read_text())


def is_public(name: str) -> bool:
    return not name.startswith("_")


def named_in(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Public functions, classes and attributes of a stub; of overloads the last."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return {name: node for name, node in found.items() if is_public(name)}


def bases_of(module: ast.Module, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The class and those of the stub that it extends."""
    classes = {each.name: each for each in module.body if isinstance(each, ast.ClassDef)}
    yield node
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            yield from bases_of(module, classes[base.id])


def arguments_in(node: ast.FunctionDef) -> list[str]:
    spec = node.args
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    return [name.lstrip("_") for name in names if name != "self"]


def arguments_of(function: Any) -> list[str] | None:
    """As the extension itself says; nothing where its arguments have no names."""
    line = (inspect.getdoc(function) or "").splitlines()[:1]
    match = re.match(r"\w+\((.*)\)", line[0]) if line else None
    if match is None:
        return None
    depth = 0
    parts = [""]
    for character in match.group(1):
        depth += (character in "[({") - (character in "])}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    names = [part.split(":")[0].split("=")[0].strip() for part in parts]
    names = [name for name in names if name not in ("", "self", "*", "/")]
    return None if any(name.startswith("arg") for name in names) else names


def public(holder: Any) -> set[str]:
    return {name for name in dir(holder) if is_public(name) and not inspect.ismodule(getattr(holder, name))}


@pytest.mark.parametrize("name", MODULES)
def test_names_are_those_of_the_module(name: str) -> None:
    assert set(named_in(stub(name).body)) == public(MODULES[name])


def pairs(name: str, module: ModuleType) -> Iterator[tuple[str, ast.FunctionDef, Any]]:
    """Functions and methods of a stub beside the real ones."""
    tree = stub(name)
    for each, node in named_in(tree.body).items():
        if isinstance(node, ast.FunctionDef):
            yield each, node, getattr(module, each)
        elif isinstance(node, ast.ClassDef):
            for member, inner in named_in(node.body).items():
                if isinstance(inner, ast.FunctionDef) and callable(getattr(getattr(module, each), member, None)):
                    yield f"{each}.{member}", inner, getattr(getattr(module, each), member)


@pytest.mark.parametrize("name", MODULES)
def test_classes_have_these_members(name: str) -> None:
    tree = stub(name)
    different = {}
    for each, node in named_in(tree.body).items():
        if isinstance(node, ast.ClassDef):
            said = {member for base in bases_of(tree, node) for member in named_in(base.body)}
            real = public(getattr(MODULES[name], each)) - {"name", "value"}
            if said - {"name", "value"} != real:
                different[each] = sorted(said ^ real)
    assert different == {}


@pytest.mark.parametrize("name", MODULES)
def test_functions_take_these_arguments(name: str) -> None:
    different = {}
    compared = 0
    for each, node, real in pairs(name, MODULES[name]):
        names = arguments_of(real)
        if names is None:
            continue
        compared += 1
        if names != arguments_in(node):
            different[each] = (arguments_in(node), names)
    assert different == {}
    assert compared > 20
