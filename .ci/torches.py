"""Downloads each tested minor of PyTorch for this Python, as far as extensions are built against it: torches.py OUT_DIR

OUT_DIR gets a folder for each minor, with headers and three libraries: OUT_DIR/2.15/torch. Nothing is installed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSIONS = Path(__file__).resolve().parents[1] / "python/lowtide/versions.py"
NEEDED = ("torch/include/", "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so",
          "torch/lib/libtorch_python.so")  # fmt: skip


def tested() -> list[str]:
    """The table of minors, read and not imported: the package may not be built yet."""
    for node in ast.parse(VERSIONS.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TESTED":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"expected TESTED in {VERSIONS}")


def fetch(minor: str, out: Path) -> None:
    """The newest patch of a minor."""
    if (out / "torch/version.py").exists():
        return
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", folder, f"torch=={minor}.*"], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            file.extractall(out, [name for name in file.namelist() if name.startswith(NEEDED)])


def main() -> None:
    """All of them."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    for minor in tested():
        out = Path(sys.argv[1]).resolve() / minor
        out.mkdir(parents=True, exist_ok=True)
        fetch(minor, out)
        print(f"PyTorch {minor}: {out}", flush=True)


if __name__ == "__main__":
    main()
