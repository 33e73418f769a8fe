"""Writes docs/python_api.md: the public names of the package, with their signatures and docstrings.

    python docs/tools/python_api.py

Sources are read, not imported: torch and the extensions are not needed. A test checks that the page is up to date.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "lowtide"
PAGE = ROOT / "docs" / "python_api.md"
SECTIONS = {
    "Plan and run": ["compile", "CompiledStep", "put_away", "keep", "recompute", "measure"],
    "Graphs and plans": ["capture", "plan", "verify", "Graph", "Plan"],
    "Eager training": ["adapt", "Adapter", "replay", "Replay", "ReplayStats"],
    "Questions": [
        "fit",
        "FitReport",
        "explain",
        "Explanation",
        "report",
        "Report",
        "diff",
        "Diff",
        "export",
        "snapshot",
        "Snapshot",
        "explain_oom",
        "OomReport",
        "is_out_of_memory",
    ],
    "Errors": [
        "LowtideError",
        "CaptureError",
        "InvalidGraphError",
        "InvalidPlanError",
        "InvalidSnapshotError",
        "InfeasibleError",
        "LimitError",
        "MemoryGuardError",
    ],
}
HEAD = """# Python API

Made by `python docs/tools/python_api.py` from the docstrings of the package. `import lowtide` does not import torch;
names that need it import it when they are first used. `lowtide.__version__` is the version.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_names() -> list[str]:
    """`lowtide.__all__`."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError("lowtide/__init__.py has no __all__")


def modules() -> dict[str, Path]:
    """By public name, the file that defines it."""
    found = {}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            path = PACKAGE / node.module.replace(".", "/")
            file = next(file for file in (path.with_suffix(".py"), path.with_suffix(".pyi"), path) if file.exists())
            found.update({name.name: file for name in node.names})
    return found


def definition(name: str, file: Path) -> ast.ClassDef | Function:
    """Where a file defines a name."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return node
    raise ValueError(f"{file.name} does not define {name}")


def signature(name: str, function: Function) -> str:
    """The call with its parameters; one to a line if they are many."""
    arguments = function.args
    if arguments.args and arguments.args[0].arg == "self":
        arguments.args.pop(0)
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    parts = [part for part in re.split(r", (?![^\[(]*[\])])", ast.unparse(arguments)) if part]
    parts = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part) for part in parts]
    line = f"{name}({', '.join(parts)}){result}".replace("_core.", "")
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){result}"]).replace("_core.", "")


def text_of(node: ast.ClassDef | Function) -> str:
    """The docstring as Markdown."""
    text = ast.get_docstring(node) or ""
    text = re.sub(r":(?:class|func):`(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r"^(>>> .*?)(?:  # doctest: \+SKIP)?$", r"    \1", text, flags=re.MULTILINE)
    return text.replace("``", "`")


def members(node: ast.ClassDef) -> Iterator[str]:
    """Public methods, properties and fields of a class."""
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and member.target.id[0] != "_":
            yield f"- `{member.target.id}`: `{ast.unparse(member.annotation)}`"
        elif isinstance(member, Function) and member.name[0] != "_":
            kinds = {ast.unparse(decorator) for decorator in member.decorator_list}
            summary = text_of(member).partition("\n\n")[0].replace("\n", " ")
            called = member.name if "property" in kinds else signature(member.name, member).replace("\n", "")
            called = re.sub(r"\( +", "(", re.sub(r",\)", ")", re.sub(r", +", ", ", called)))
            yield f"- `{called}`" + (f": {summary}" if summary else "")


def entry(name: str, node: ast.ClassDef | Function) -> str:
    """One name: heading, signature, docstring, members."""
    parts = [f"### lowtide.{name}"]
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases if ast.unparse(base).endswith("Error")]
        parts += [f"A kind of `{bases[0]}`."] if bases else []
    else:
        parts.append(f"```text\n{signature(f'lowtide.{name}', node)}\n```")
    parts += [text_of(node)] if text_of(node) else []
    if isinstance(node, ast.ClassDef):
        parts += ["\n".join(members(node))] if list(members(node)) else []
    return "\n\n".join(parts)


def page() -> str:
    """The whole page."""
    listed = [name for names in SECTIONS.values() for name in names]
    if sorted([*listed, "__version__"]) != sorted(public_names()):
        raise ValueError(f"SECTIONS and __all__ differ: {sorted({*listed, '__version__'} ^ {*public_names()})}")
    files = modules()
    parts = [HEAD.rstrip()]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        parts += [entry(name, definition(name, files[name])) for name in names]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE.name} is out of date: python docs/tools/python_api.py")
    PAGE.write_text(page())
