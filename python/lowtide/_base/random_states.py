"""Where PyTorch's random numbers come from: the default generators of the CPU and of all CUDA devices in use."""

from __future__ import annotations

import torch

RandomStates = tuple[torch.Tensor, ...]

_FAR = 1 << 40  # numbers: no step draws so many


def _cuda_generators() -> tuple[torch.Generator, ...]:
    return torch.cuda.default_generators if torch.cuda._initialized else ()


def read_random_states() -> RandomStates:
    """As they are now."""
    return (torch.get_rng_state(), *[generator.get_state() for generator in _cuda_generators()])


def set_random_states(states: RandomStates) -> None:
    """Sets them to what was read. A device that has come into use since then keeps its own."""
    cpu, *others = states
    torch.set_rng_state(cpu)
    for generator, state in zip(_cuda_generators(), others, strict=False):
        generator.set_state(state)


def same_random_states(one: RandomStates, other: RandomStates) -> bool:
    """Whether they are the same wherever both were read."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=False))


def move_random_states() -> None:
    """Lets the generators stand where they have never been before."""
    torch.rand((), device="cpu")
    for generator in _cuda_generators():
        generator.set_offset(generator.get_offset() + _FAR)
