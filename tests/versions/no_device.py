"""Stub libraries with which PyTorch's CUDA build is imported where no library of NVIDIA's is: no_device.py OUT_DIR

PyPI has new versions of PyTorch as CUDA builds alone. With OUT_DIR in LD_LIBRARY_PATH such a build runs on the CPU:
every function of the stubs answers that there is no device.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "emulated_cuda"))

from build import run, torch_folder, wanted_symbols

_NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
_TEXTS = {"cudaGetErrorString", "cudaGetErrorName"}


def write_stub(out: Path, library: str, wanted: dict[str, str | None]) -> None:
    """Links one library; symbols of a version have it."""
    functions = [
        f'const char* {name}(void) {{ return "no device"; }}' if name in _TEXTS
        else f"int {name}(void) {{ return {_NO_DEVICE}; }}"
        for name in sorted(wanted)
    ]  # fmt: skip
    source = out / f"{library}.c"
    source.write_text("\n".join([*functions, ""]))
    script = out / f"{library}.map"
    version = next(filter(None, wanted.values()), "")
    script.write_text(f"{version} {{ global: *; }};\n")
    run("gcc", "-w", "-shared", "-fPIC", source, "-o", out / library, f"-Wl,-soname,{library}",
        f"-Wl,--version-script={script}")  # fmt: skip


def main() -> None:
    """Stubs for the PyTorch of this Python."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for library, wanted in wanted_symbols(torch_folder() / "lib").items():
        write_stub(out, library, wanted)


if __name__ == "__main__":
    main()
