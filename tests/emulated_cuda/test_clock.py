"""The virtual clock: declared rates give exact times, whatever the machine does meanwhile."""

import emulated_cuda
import pytest
import torch

MEGABYTES = 64
FLOATS = MEGABYTES * 250_000


def test_copies_take_the_time_of_the_link(every_order):
    host, device = torch.empty(FLOATS, pin_memory=True), torch.empty(FLOATS, device="cuda")
    with emulated_cuda.declared(link=8):
        assert emulated_cuda.milliseconds(lambda: device.copy_(host, non_blocking=True)) == pytest.approx(MEGABYTES / 8)
        assert emulated_cuda.milliseconds(lambda: host.copy_(device, non_blocking=True)) == pytest.approx(MEGABYTES / 8)


def test_kernels_take_the_time_of_the_roofline(every_order):
    x, a = torch.ones(FLOATS, device="cuda"), torch.ones(1000, 1000, device="cuda")
    with emulated_cuda.declared(bandwidth=100, tflops=1):
        assert emulated_cuda.milliseconds(lambda: x.mul_(2)) == pytest.approx(2 * MEGABYTES / 100, rel=1e-3)
        assert emulated_cuda.milliseconds(lambda: a @ a) == pytest.approx(2.0, rel=1e-3)  # 2 * 1000^3 / 1e12 s


def test_kernels_take_their_cpu_time_otherwise(every_order):
    a = torch.rand(300, 300, device="cuda")
    assert emulated_cuda.milliseconds(lambda: a @ a) > 0.01


def overlap(wait):
    """A copy and a kernel of 8 ms each on two streams."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    host, device = torch.empty(FLOATS, pin_memory=True), torch.empty(FLOATS, device="cuda")
    x = torch.ones(FLOATS, device="cuda")

    def program():
        side.wait_stream(main)
        with torch.cuda.stream(side):
            device.copy_(host, non_blocking=True)
        if wait:
            main.wait_stream(side)
        x.mul_(2)
        main.wait_stream(side)

    with emulated_cuda.declared(link=8, bandwidth=16):
        return emulated_cuda.milliseconds(program)


def test_copies_and_kernels_overlap(every_order):
    assert overlap(wait=False) == pytest.approx(8, rel=1e-3)
    assert overlap(wait=True) == pytest.approx(16, rel=1e-3)


def test_copies_of_one_direction_share_the_link(every_order):
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.empty(FLOATS, pin_memory=True) for _ in range(2)]
    device = [torch.empty(FLOATS, device="cuda") for _ in range(2)]

    def program(second):
        side.wait_stream(main)
        device[0].copy_(host[0], non_blocking=True)
        with torch.cuda.stream(side):
            second()
        main.wait_stream(side)

    with emulated_cuda.declared(link=8):
        assert emulated_cuda.milliseconds(
            lambda: program(lambda: device[1].copy_(host[1], non_blocking=True))
        ) == pytest.approx(16)
        assert emulated_cuda.milliseconds(
            lambda: program(lambda: host[1].copy_(device[1], non_blocking=True))
        ) == pytest.approx(8)
