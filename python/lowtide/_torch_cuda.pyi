"""Planned memory on CUDA devices. It is there where Lowtide was built for PyTorch's CUDA build."""

BUILT_FOR: str  # the version of PyTorch

def enable(runtime: object, index: int) -> None:
    """Let the runtime of `_torch` plan memory on this device; once is enough."""

def leave_out_waits(index: int, leave_out: bool) -> None:
    """Plant a fault, for tests: steps on one stream do not wait for what another has queued in the arena."""

def leave_out_waits_of_transfers(index: int, before: bool, after: bool) -> None:
    """Plant faults, for tests: transfers do not wait for what comes before them, or are not waited for."""
