"""What small kernels take on GPUs, as `lowtide._lower.utilisation` has it, beside published times.

    python -m bench.fission.utilisation VIDUR [--constants]

VIDUR is a checkout of Vidur (Agrawal et al., MLSys 2024; github.com/microsoft/vidur, here at 7d47513), whose profiles
have times of kernels without launches: data/profiling/compute/*/*/*/mlp.csv. Used are linear layers in float16 of
Phi-2 and of Llama-2-7B, whole and as an eighth of them, on 128, 512 and 2048 rows, and the addition of two tensors in
Llama-2-7B. Where a layer was profiled several times, it is the median of its medians.

The four constants are fitted to the A100: 36 products and 8 additions. The A40 and the H100 are held against them.
Errors are root mean squares of log(model / published):

    products     A100 0.110, A40 0.187, H100 0.119; the roofline alone 0.59 on the A100, the roofline and 5 us 0.38
    additions    A100 0.174, A40 0.438, H100 0.264; the roofline alone 1.86 on the A100, the roofline and 5 us 0.66

Operands of additions of up to 1024 rows fit into the A100's cache, of which the model knows nothing. So the share of
the bandwidth is what the two largest additions reach, and not what fits all of them best.

With `--constants`, the errors on the A100 where one constant is another.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.lib.markdown import header, line
from lowtide._lower import utilisation
from lowtide._lower.gpus import DEVICES, GIB, GIGA, Device
from lowtide._lower.utilisation import Kernel, Product, kernel_ns

A40 = Device("A40", 48 * GIB, 696 * GIGA, {"float32": 37_400 * GIGA, "float16": 149_700 * GIGA}, (8, 6), 84, 1536)
ON = (DEVICES["A100"], A40, DEVICES["H100"])

PHI, LLAMA = "microsoft/phi-2", "meta-llama/Llama-2-7b-hf"
SHARDS = ((PHI, 1), (LLAMA, 1), (LLAMA, 8))  # one of so many that a layer is cut into
ROWS_OF_PRODUCTS = (128, 512, 2048)
ROWS_OF_ADDITIONS = (1, 64, 128, 256, 512, 1024, 2048, 4096)

CONSTANTS = {
    "FILL_NS": (500, 1_000, 1_500, 2_000, 2_500),
    "PRODUCT_FILL_NS": (3_000, 4_000, 5_000, 6_000, 7_000),
    "BANDWIDTH_SHARE": (0.8, 0.85, 0.9, 0.95, 1),
    "FEED": (14, 18, 22, 26, 30),
}


class Point(NamedTuple):
    """A kernel, and what was published."""

    kernel: Kernel
    name: str
    published: tuple[float, ...]  # microseconds on each of ON

    def model(self, device: Device) -> float:
        """Microseconds, without the launch."""
        return (kernel_ns(self.kernel, device.operations_per_second["float16"], device) - device.launch_ns) / 1000


class Profile:
    """Of the layers of one model, in so many shards, on each of ON."""

    def __init__(self, vidur: Path, model: str, shards: int) -> None:
        files = [vidur / "data/profiling/compute" / device.name.lower() / model / "mlp.csv" for device in ON]
        self._on = [[row for row in _rows(file) if int(row["num_tensor_parallel_workers"]) == shards] for file in files]
        size = self._on[0][0]
        self.width = int(size["n_embd"])
        heads, shared_heads = int(size["n_head"]), int(size["n_kv_head"])
        inner = int(size["n_expanded_embd"])
        gates = 2 if size["use_gated_mlp"] == "True" else 1
        self.layers = {  # columns and depth
            "attn_pre_proj": (self.width // heads * (heads + 2 * shared_heads) // shards, self.width),
            "attn_post_proj": (self.width, self.width // shards),
            "mlp_up_proj": (gates * inner // shards, self.width),
            "mlp_down_proj": (self.width, inner // shards),
        }

    def microseconds(self, layer: str, tokens: int) -> tuple[float, ...]:
        key = f"time_stats.{layer}.median"
        return tuple(
            1000 * median(float(row[key]) for row in rows if int(row["num_tokens"]) == tokens) for rows in self._on
        )


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def products(vidur: Path) -> list[Point]:
    return [point for model, shards in SHARDS for point in _products(Profile(vidur, model, shards))]


def _products(profile: Profile) -> Iterator[Point]:
    for rows in ROWS_OF_PRODUCTS:
        for layer, (columns, depth) in profile.layers.items():
            kernel = Kernel(2 * (rows * depth + depth * columns + rows * columns), Product(1, rows, columns, depth))
            yield Point(kernel, f"{rows} x {columns} x {depth}", profile.microseconds(layer, rows))


def additions(vidur: Path) -> list[Point]:
    profile = Profile(vidur, LLAMA, 1)
    return [
        Point(Kernel(3 * 2 * profile.width * rows), f"{rows} x {profile.width}", profile.microseconds("add", rows))
        for rows in ROWS_OF_ADDITIONS
    ]


def error(points: Iterable[Point], on: int) -> float:
    """How far the model is off on a device, as a root mean square of logarithms: 0.1 is about 10 %."""
    logs = [math.log(point.model(ON[on]) / point.published[on]) for point in points]
    return math.sqrt(sum(log * log for log in logs) / len(logs))


def print_table(title: str, points: Sequence[Point]) -> None:
    """Model and published, then the errors."""
    print(header((title, *(f"{device.name} {what}" for device in ON for what in ("model", "published", "ratio")))))
    for point in points:
        cells = [
            cell
            for device, published in zip(ON, point.published, strict=True)
            for cell in (f"{point.model(device):.1f}", f"{published:g}", f"{point.model(device) / published:.2f}")
        ]
        print(line((point.name, *cells)))
    print(line(("error", *(cell for on in range(len(ON)) for cell in ("", "", f"{error(points, on):.3f}")))), "\n")


def print_constants(vidur: Path) -> None:
    """How good other constants are, each alone."""
    measured = (products(vidur), additions(vidur))
    print(header(("constant", "is", "products", "additions")))
    for name, values in CONSTANTS.items():
        fitted = getattr(utilisation, name)
        for value in values:
            setattr(utilisation, name, value)
            utilisation._product_ns.cache_clear()
            errors = (f"{error(points, 0):.3f}" for points in measured)
            print(line((name, f"{value:g}{' (fitted)' if value == fitted else ''}", *errors)))
        setattr(utilisation, name, fitted)
    utilisation._product_ns.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(
        "bench.fission.utilisation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vidur", type=Path, metavar="VIDUR", help="the checkout")
    parser.add_argument("--constants", action="store_true", help="errors of other constants")
    options = parser.parse_args()
    if options.constants:
        print_constants(options.vidur)
        return
    print_table("product", products(options.vidur))
    print_table("addition", additions(options.vidur))


if __name__ == "__main__":
    main()
