"""Builds emulated CUDA for the PyTorch of this Python: python build.py OUT_DIR

OUT_DIR gets stub libraries with the names of NVIDIA's, and the library that computes values. It takes g++ and the
headers of nvcc 13. What PyTorch wants from a library and nobody wrote becomes a function that aborts with its name.
"""

import collections
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CUDART = "libcudart.so.13"
VALUES = "libemulated_cuda_values.so"

# Which sources a library has. Libraries without any are made of aborting functions alone.
SOURCES = {
    CUDART: ["allocations", "clock", "copies", "devices", "figures", "interface", "kernels", "memory", "modules",
             "stream_calls", "streams", "virtual_memory"],
    "libcublas.so.13": ["blas"],
    "libcublasLt.so.13": ["blas_lt"],
    "libcudnn.so.9": ["loaded_only"],
    "libcupti.so.13": ["loaded_only"],
    "libnvrtc.so.13": ["nvrtc"],
    "libnccl.so.2": ["loaded_only"],
    "libnvidia-ml.so.1": ["nvml"],
    "libcuda.so.1": [],
}  # fmt: skip

# Where symbols without a version belong, the first that fits.
BY_PREFIX = {
    "cuFile": "libcufile.so.0",
    "cusparseLt": "libcusparseLt.so.0",
    "nccl": "libnccl.so.2",
    "nvshmem": "libnvshmem_host.so.3",
    "cu": "libcuda.so.1",
}


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def cuda_headers():
    """The include directory of nvcc, or of the newest CUDA in /usr/local."""
    nvcc = shutil.which("nvcc")
    places = [pathlib.Path(os.environ["CUDA_HOME"])] if "CUDA_HOME" in os.environ else []
    if nvcc:
        found = re.search(r"TOP=(\S+)", subprocess.run([nvcc, "--dryrun", "-x", "cu", "-c", os.devnull],
                                                       capture_output=True, text=True).stderr)  # fmt: skip
        places += [pathlib.Path(found[1])] if found else []
        places.append(pathlib.Path(nvcc).resolve().parent.parent)
    places += sorted(pathlib.Path("/usr/local").glob("cuda*"), reverse=True)
    for place in places:
        if (place / "include/cuda_runtime_api.h").exists():
            return place / "include"
    raise SystemExit("emulated CUDA: expected the headers of CUDA 13 beside nvcc or in /usr/local/cuda, found none")


def torch_folder():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin or not (pathlib.Path(spec.origin).parent / "lib/libtorch_cuda.so").exists():
        raise SystemExit("emulated CUDA: expected PyTorch's CUDA build in this Python, see setup.sh")
    return pathlib.Path(spec.origin).parent


def wanted_symbols(folder):
    """For each library of NVIDIA's, what PyTorch's libraries want from it: {library: {symbol: version or None}}."""
    wanted = collections.defaultdict(dict)
    defined = set()
    for path in sorted(folder.glob("lib*.so")):
        for library in re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^]]*)\]", run("readelf", "-d", path)):
            _ = wanted[library]
        for line in run("nm", "-D", path).splitlines():
            kind, name = line.split()[-2:]
            symbol, _, version = name.partition("@")
            if kind != "U":
                defined.add(symbol)
            elif re.fullmatch(r"lib(cu|nv)\w+\.so\.\d+", version):
                wanted[version][symbol] = version
            elif version == "NVSHMEM":
                wanted["libnvshmem_host.so.3"][symbol] = version
            elif not version:
                library = next((name for prefix, name in BY_PREFIX.items() if symbol.startswith(prefix)), None)
                if library:
                    wanted[library][symbol] = None
    for library in SOURCES:
        _ = wanted[library]
    return {library: {s: v for s, v in symbols.items() if s not in defined} for library, symbols in wanted.items()}


def compile_source(out, source, includes):
    """The object file of a source, made again if the source or a header that it may include is newer."""
    made = out / f"{source.parent.name}_{source.stem}.o"
    headers = [*HERE.glob("runtime/*.h"), *source.parent.glob("*.h")]
    newest = max(path.stat().st_mtime for path in [source, *headers])
    if not made.exists() or made.stat().st_mtime < newest:
        flags = ["-std=c++20", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall"]
        run("g++", *flags, *(f"-isystem{path}" for path in includes), "-c", source, "-o", made)
    return made


def compile_all(out, sources, includes):
    """Object files by the names of their sources. As many at once as CMAKE_BUILD_PARALLEL_LEVEL says, or one."""
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "1"))) as pool:
        made = pool.map(lambda source: compile_source(out, source, includes), sources)
        return {source.stem: result for source, result in zip(sources, made, strict=True)}


def defined_symbols(objects):
    """What object files define for others."""
    return {line.split()[-1] for o in objects for line in run("nm", "--defined-only", "-g", o).splitlines() if line}


def link_library(out, library, wanted, objects, elsewhere):
    """One stub library. Returns how many of its functions abort. `elsewhere`: what the runtime defines for it."""
    missing = sorted(set(wanted) - defined_symbols(objects) - elsewhere)
    stubs = out / f"{library}.aborts.c"
    stubs.write_text("\n".join([
        "#include <stdio.h>", "#include <stdlib.h>",
        '#define ABORTS(name) int name(void) { fputs("emulated CUDA: " #name " is not written\\n", stderr); abort(); }',
        *(f"ABORTS({name})" for name in missing), ""]))  # fmt: skip
    version = next((v for v in wanted.values() if v), "")
    exported = "cu*; __cuda*; nv*; nccl*; emulated_cuda_*;"
    script = out / f"{library}.map"
    script.write_text(f"{version} {{ global: {exported} local: *; }};\n")
    own = library == CUDART
    run("g++", "-shared", "-fPIC", "-w", "-x", "c", stubs, "-x", "none", *objects, "-o", out / library,
        f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", "-Wl,-rpath,$ORIGIN", "-ldl",
        *([] if own else ["-Wl,--no-as-needed", "-L", out, f"-l:{CUDART}"]))  # fmt: skip
    return len(missing)


def build_values(out, torch, headers):
    """The library that computes values, against PyTorch's own headers and libraries."""
    objects = compile_all(out, sorted(HERE.glob("values/*.cc")), [headers, torch / "include"])
    run("g++", "-shared", *objects.values(), "-o", out / VALUES, "-L", out, f"-l:{CUDART}", "-L", torch / "lib",
        "-lc10", "-lc10_cuda", "-ltorch_cpu", "-Wl,-rpath,$ORIGIN")  # fmt: skip


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    torch, headers = torch_folder(), cuda_headers()
    objects = compile_all(out, sorted(HERE.glob("runtime/*.cc")), [headers])
    wanted = wanted_symbols(torch / "lib")
    in_runtime = defined_symbols(objects[name] for name in SOURCES[CUDART])
    for library in sorted(wanted, key=lambda name: (name != CUDART, name)):  # the others link to the runtime
        sources = [objects[name] for name in SOURCES.get(library, [])]
        aborts = link_library(
            out, library, wanted[library], sources, in_runtime if library == "libcuda.so.1" else set()
        )
        print(f"{library:24} {len(wanted[library]):4} functions wanted, {aborts:4} abort")
    build_values(out, torch, headers)


if __name__ == "__main__":
    main()
