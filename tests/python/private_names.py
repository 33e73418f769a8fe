"""Finds the private names of PyTorch that the package uses: dotted names of modules, and attributes of objects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


class _File:
    """One module of ours: what its names mean, as far as they begin at an import of torch."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text())
        self.names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    if name.name.partition(".")[0] == "torch":
                        self.names[name.asname or "torch"] = name.name if name.asname else "torch"
            elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
                self.names.update({name.asname or name.name: f"{node.module}.{name.name}" for name in node.names})
        for node in ast.walk(self.tree):  # other names for them: _aten = torch.ops.aten
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for one, value in pairs:
                    meaning = self.dotted(value)
                    if meaning and isinstance(one, ast.Name):
                        self.names.setdefault(one.id, meaning)

    def dotted(self, node: ast.AST) -> str:
        """What an expression names in torch, or ""."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def in_torch(self) -> Iterator[str]:
        """Dotted names with a private part."""
        inner = {id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                yield self.dotted(node)
        yield from (
            f"{node.module}.{name.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and not node.level
            for name in node.names
        )
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)

    def attributes(self) -> Iterator[str]:
        """Private attributes of what is not torch's own module or class, and not `self`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and not self.dotted(node):
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                    yield node.attr
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
                name = node.args[1]
                if node.func.id in ("getattr", "hasattr", "setattr") and isinstance(name, ast.Constant):
                    yield from filter(is_private, [str(name.value)])

    def defines(self) -> Iterator[str]:
        """Private names that our own classes and modules have."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield from [node.attr] if isinstance(node.value, ast.Name) and node.value.id == "self" else []
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id


def used_by(package: Path) -> tuple[dict[str, set[str]], set[str]]:
    """Dotted names of torch with a private part, with the rooms that use them; and attributes nobody of ours has."""
    files = {path: _File(path) for path in sorted(package.rglob("*.py"))}
    names: dict[str, set[str]] = {}
    for path, file in files.items():
        room = path.relative_to(package).parts[0]
        for name in file.in_torch():
            if name.startswith("torch.") and any(map(is_private, name.split("."))):
                names.setdefault(name, set()).add(room)
    own = {name for file in files.values() for name in file.defines()}
    own |= {part for path in files for part in (path.stem, path.parent.name)}
    return names, {name for file in files.values() for name in file.attributes()} - own
