"""GPUs that are not here: what their makers publish, and how PyTorch splits work on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2**30
GIGA = 10**9
LAUNCH_NS = 4000  # assumed, not measured: what it takes to hand one kernel to the device, and the device to begin


@dataclass(frozen=True, slots=True)
class Device:
    """What a device's maker says it can do: dense, without sparsity."""

    name: str
    memory_bytes: int
    bytes_per_second: int
    operations_per_second: Mapping[str, int]  # by dtype; float32 without tensor cores, tf32 with
    capability: tuple[int, int]  # as torch.cuda.get_device_capability() has it: which kernels there are
    multiprocessors: int
    threads_per_multiprocessor: int
    warp: int = 32  # threads; 64 on AMD's
    has_inline_ecc: bool = False  # error correction lies in the memory itself, and is on unless somebody turns it off
    launch_ns: int = LAUNCH_NS

    @property
    def ecc_bytes(self) -> int:
        """What error correction takes of its memory."""
        return self.memory_bytes // 16 if self.has_inline_ecc else 0

    @property
    def is_amd(self) -> bool:
        """Whether it runs ROCm, not CUDA."""
        return self.warp == 64


def _rates(float32: float, half: float, tf32: float | None = None) -> dict[str, int]:
    """From teraflops; float16 and bfloat16 are equally fast where there is a tf32."""
    rates = {"float32": float32, "float16": half}
    if tf32 is not None:
        rates |= {"tf32": tf32, "bfloat16": half}
    return {dtype: round(rate * 1000) * GIGA for dtype, rate in rates.items()}


_A100 = _rates(19.5, 312, 156)
_HOPPER = _rates(67, 989.5, 494.5)

# Data sheets of T4 (2019), A100 SXM (2021), A10 (2021), H100 SXM (2023), L4 (2023), H200 SXM (2024), HGX B200 (2025)
# and Instinct MI300X (2023), and NVIDIA's papers on GA102 (2020) and Ada (2022). Where they give the peaks of tensor
# cores with sparsity, those are twice the ones here. Peaks of half precision are those that add in float32.
DEVICES = {
    device.name: device
    for device in (
        Device("A100", 80 * GIB, 2_039 * GIGA, _A100, (8, 0), 108, 2048),
        Device("A100-40", 40 * GIB, 1_555 * GIGA, _A100, (8, 0), 108, 2048),
        Device("H100", 80 * GIB, 3_350 * GIGA, _HOPPER, (9, 0), 132, 2048),
        Device("H200", 141 * GIB, 4_800 * GIGA, _HOPPER, (9, 0), 132, 2048),
        Device("B200", 180 * GIB, 8_000 * GIGA, _rates(75, 2250, 1125), (10, 0), 148, 2048),
        Device("L4", 24 * GIB, 300 * GIGA, _rates(30.3, 121, 60), (8, 9), 58, 1536, has_inline_ecc=True),
        Device("A10", 24 * GIB, 600 * GIGA, _rates(31.2, 125, 62.5), (8, 6), 72, 1536, has_inline_ecc=True),
        Device("T4", 16 * GIB, 320 * GIGA, _rates(8.1, 65), (7, 5), 40, 1024, has_inline_ecc=True),
        Device("RTX 3090", 24 * GIB, 936 * GIGA, _rates(35.6, 71, 35.6), (8, 6), 82, 1536),
        Device("RTX 4090", 24 * GIB, 1_008 * GIGA, _rates(82.6, 165.2, 82.6), (8, 9), 128, 1536),
        Device("MI300X", 192 * GIB, 5_300 * GIGA, _rates(163.4, 1307.4, 653.7), (9, 4), 304, 2048, warp=64),
    )
}
_DECORATION = re.compile(r"nvidia|amd|geforce|tesla|instinct|rtx|sxm\d?|gi?b$|[\s_-]")


def _bare(name: str) -> str:
    """What distinguishes a device, of all that its name may be dressed in: "NVIDIA GeForce RTX 4090" is "4090"."""
    return _DECORATION.sub("", name.lower())


_BY_BARE_NAME = {_bare(name): device for name, device in DEVICES.items()} | {
    f"{_bare(device.name)}{device.memory_bytes // GIB}": device for device in (DEVICES["A100"], DEVICES["H100"])
}


def device_named(name: str) -> Device:
    """The device of that name, however it is dressed ("a100-80gb", "4090"); `ValueError` if there is none."""
    device = _BY_BARE_NAME.get(_bare(name))
    if device is None:
        raise ValueError(f"no device is called {name!r}; there are {', '.join(DEVICES)}")
    return device
