"""Installs a wheel beside a minor of PyTorch and runs tests there, as rows of a table: table.py WHEEL... [--torch 2.15]

Each wheel is tried under the Python that it is for, found as pythonX.Y or named by --python, in environments below
build/versions, which are made where they are missing. PyTorch comes from PyPI, CPU build or CUDA build: `no_device.py`
makes stubs for the libraries of the latter. --quick runs a part of the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINORS = ("2.13", "2.14", "2.15")
SUITES = {
    "training": [],
    "reuse": [],
    "zoo": ["-k", "five_steps"],
    "fallbacks": [],
    "replay": [],
    "adapt": [],
    "trust": [],
}
QUICK = {"training": ["-k", "ten_steps and (mlp or gpt2)"], "fallbacks": [], "replay": [], "trust": ["-k", "planned"]}
BESIDE_TORCH = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools>=77.0.3"]
FOR_TESTS = ["numpy==2.4.6", "pytest==9.0.3", "pytest-xdist==3.8.0", "transformers==5.22.2"]


def environment(interpreter: str, python: str, minor: str) -> Path:
    """With PyTorch and what the tests need, and without a library of NVIDIA's."""
    folder = ROOT / "build/versions" / f"{python}-{minor}"
    if not (folder / "bin/pytest").exists():
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        pip = [folder / "bin/pip", "install", "-q", "--no-compile"]
        subprocess.run([*pip, "--no-deps", f"torch=={minor}.*"], check=True)
        subprocess.run([*pip, *BESIDE_TORCH, *FOR_TESTS], check=True)
    return folder


def variables(folder: Path) -> dict[str, str]:
    """For programs in an environment."""
    stubs = ROOT / "build/versions/no_device" / folder.name
    if not stubs.exists() and list(folder.glob("lib/python*/site-packages/torch/lib/libtorch_cuda.so")):
        subprocess.run([folder / "bin/python", ROOT / "tests/versions/no_device.py", stubs], check=True)
    cache = folder / "lowtide-cache"
    shutil.rmtree(cache, ignore_errors=True)
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    return {**left, "LD_LIBRARY_PATH": str(stubs), "LOWTIDE_CACHE_DIR": str(cache)}


def install(folder: Path, wheel: Path) -> float:
    """How long it takes, in seconds."""
    pip = [folder / "bin/pip"]
    subprocess.run([*pip, "uninstall", "-q", "-y", "lowtide"], check=True, stderr=subprocess.DEVNULL)
    begin = time.monotonic()
    subprocess.run([*pip, "install", "-q", "--no-deps", wheel], check=True)
    return time.monotonic() - begin


def tested(folder: Path, suite: str, options: list[str]) -> str:
    """Tests passed, of all that ran."""
    test = ROOT / f"tests/python/test_{suite}.py"
    command = [folder / "bin/python", "-m", "pytest", "-p", "no:cacheprovider", "-q", test, *options]
    said = subprocess.run(command, cwd=ROOT, env=variables(folder), capture_output=True, text=True).stdout
    (ROOT / "build/versions" / f"{folder.name}-{suite}.log").write_text(said)
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|failed|error)", said.rpartition("=")[2])}
    marks = re.findall(r"^[.FEsxX]+ +\[", said, re.MULTILINE)  # what `-q -q` leaves of the counts
    passed = counts.get("passed", sum(mark.count(".") for mark in marks))
    failed = counts.get("failed", 0) + counts.get("error", 0) or sum(len(re.findall("[FE]", mark)) for mark in marks)
    return f"{passed} of {passed + failed}"


def main() -> int:
    """A row for each wheel and minor; 1 if a test fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--torch", action="append", choices=MINORS, help="minors; all of them otherwise")
    parser.add_argument("--python", help="the interpreter, if it is not pythonX.Y")
    parser.add_argument("--quick", action="store_true", help="a part of the tests, without zoo and adapt")
    options = parser.parse_args()
    suites = QUICK if options.quick else SUITES
    print(f"| Python | PyTorch | install | {' | '.join(suites)} |", "|---" * (len(suites) + 3) + "|", sep="\n")
    complete = True
    for wheel in options.wheels:
        python = re.sub(r".*-cp3(\d+)-.*", r"3.\1", wheel.name)
        for minor in options.torch or MINORS:
            folder = environment(options.python or f"python{python}", python, minor)
            seconds = install(folder, wheel)
            found = [tested(folder, suite, chosen) for suite, chosen in suites.items()]
            complete &= all(int(one.split()[0]) == int(one.split()[2]) > 0 for one in found)
            print(f"| {python} | {minor} | {seconds:.1f} s | {' | '.join(found)} |", flush=True)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
