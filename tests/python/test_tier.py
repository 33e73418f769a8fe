"""Files to swap to, as tensors see them: one memory, whether it is written by Python or by transfers."""

from __future__ import annotations

import datetime
import errno
import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lowtide._torch import TierFile, measure_link

MIB = 1 << 20
WAYS = [("best", True), ("threads", True), ("threads", False)]


@pytest.fixture(params=WAYS, ids=["best", "threads", "ordinary"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TierFile]:
    way, direct = request.param
    yield TierFile(str(tmp_path), way, direct)
    assert list(tmp_path.iterdir()) == []


def noise(bytes: int) -> torch.Tensor:
    return torch.randint(256, (bytes,), dtype=torch.uint8)


def place(tensor: torch.Tensor) -> int:
    found = TierFile.find(tensor)
    assert found is not None
    return found[1]


def mapped_memory() -> int:
    """Bytes of files that this process has in memory."""
    found = re.search(r"RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def disk_bytes() -> int:
    """Of the largest file without a name that this process has open."""
    largest = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            if link.readlink().name.endswith(" (deleted)"):
                largest = max(largest, link.stat().st_blocks * 512)
        except OSError:  # that of the folder itself
            continue
    return largest


@pytest.mark.parametrize("bytes", [1, 4096, 5000, 3 * MIB + 17])
def test_what_was_stored_is_loaded(file: TierFile, bytes: int) -> None:
    tensor = noise(bytes + 64)[64:]
    offset = file.reserve(bytes)
    again = torch.empty(bytes + 64, dtype=torch.uint8)[64:]
    stored = file.store(tensor, offset)
    file.wait(file.load(again, offset))
    file.wait(stored)
    assert torch.equal(again, tensor)
    file.release(offset, bytes)


def test_a_tensor_of_the_file_is_what_is_stored_and_loaded(file: TierFile) -> None:
    home = file.tensor(2 * MIB)
    floats = home.view(torch.float32).view(512, 1024)
    memory = torch.empty(512, 1024)
    for step in range(3):
        floats.normal_()
        file.wait(file.load(memory, place(home)))
        assert torch.equal(memory, floats)
        memory += step
        file.wait(file.store(memory, place(home)))
        assert torch.equal(floats, memory)
        array = floats.numpy()
        assert np.array_equal(array, memory.numpy())
        array[3, 5] = 7.0
        file.wait(file.load(memory, place(home)))
        assert memory[3, 5] == 7.0
        TierFile.forget_pages(home)
        assert floats[3, 5] == 7.0


def test_it_works_like_any_tensor(file: TierFile) -> None:
    home = file.tensor(4 * 100).view(torch.float32)
    parameter = torch.nn.Parameter(home.fill_(0.5).view(10, 10))
    loss = (torch.ones(3, 10) @ parameter).square().sum()
    loss.backward()
    torch.optim.SGD([parameter], lr=0.01).step()
    twin = torch.nn.Parameter(torch.full((10, 10), 0.5))
    (torch.ones(3, 10) @ twin).square().sum().backward()
    torch.optim.SGD([twin], lr=0.01).step()
    assert torch.equal(parameter, twin)
    memory = torch.empty(101)[1:]
    file.wait(file.load(memory, place(home)))
    assert torch.equal(memory.view(10, 10), twin)


def test_forgotten_pages_are_no_memory(file: TierFile) -> None:
    home = file.tensor(64 * MIB)
    before = mapped_memory()
    home.fill_(3)
    assert mapped_memory() >= before + 60 * MIB
    assert TierFile.is_touched(home)
    TierFile.forget_pages(home)
    assert mapped_memory() <= before + 4 * MIB
    assert not TierFile.is_touched(home)
    assert int(home[5 * MIB]) == 3
    assert TierFile.is_touched(home)
    assert not TierFile.is_touched(home[32 * MIB :])


def test_transfers_touch_no_page_of_a_home(tmp_path: Path) -> None:
    file = TierFile(str(tmp_path))
    if not file.direct:
        pytest.skip("this file system has no direct I/O")
    home = file.tensor(16 * MIB)
    memory = noise(16 * MIB + 64)[64:]
    file.wait(file.store(memory, place(home)))
    file.wait(file.load(memory, place(home)))
    assert not TierFile.is_touched(home)


def test_a_slot_goes_with_its_tensor(file: TierFile) -> None:
    gc.collect()
    before = disk_bytes()
    home = file.tensor(8 * MIB)
    view = home[4096:]
    offset = place(home)
    assert disk_bytes() >= before + 8 * MIB
    del home
    assert place(view) == offset + 4096
    del view
    assert disk_bytes() <= before + MIB
    assert place(file.tensor(8 * MIB)) == offset


def test_a_tensor_outlives_the_file_object(tmp_path: Path) -> None:
    home = TierFile(str(tmp_path)).tensor(MIB).fill_(9)
    gc.collect()
    found = TierFile.find(home)
    assert found is not None and found[0].folder == str(tmp_path)
    memory = torch.empty(MIB + 64, dtype=torch.uint8)[64:]
    found[0].wait(found[0].load(memory, found[1]))
    assert torch.equal(memory, home)


def test_other_tensors_have_no_file() -> None:
    assert TierFile.find(torch.ones(3)) is None


@pytest.mark.parametrize(
    ("kind", "error"), [("io_error", errno.EIO), ("no_space", errno.ENOSPC), ("flipped_byte", errno.EBADMSG)]
)
def test_failures_are_errors(file: TierFile, kind: str, error: int) -> None:
    offset = file.reserve(MIB)
    memory = noise(MIB + 64)[64:]
    file.wait(file.store(memory, offset))
    file.set_faults({0: kind})
    with pytest.raises(OSError, match=f"cannot load 1048576 bytes at offset {offset}") as raised:
        file.wait(file.load(memory, offset))
    assert raised.value.errno == error
    file.set_faults({})
    file.wait(file.store(memory, offset))
    file.wait_all()


def test_a_stuck_disk_is_given_up(tmp_path: Path) -> None:
    file = TierFile(str(tmp_path), patience=datetime.timedelta(milliseconds=50))
    file.set_faults({0: "stuck"})
    memory = noise(MIB)
    ticket = file.store(memory, file.reserve(MIB))
    with pytest.raises(TimeoutError, match="nothing has moved for too long"):
        file.wait(ticket)


def test_folders_in_memory_are_refused() -> None:
    with pytest.raises(OSError, match=r"got one in memory \(tmpfs\).* in /dev/shm"):
        TierFile("/dev/shm")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        TierFile(str(tmp_path / "missing"))


def test_too_much_is_refused_at_once(file: TierFile) -> None:
    with pytest.raises(OSError, match=rf"cannot reserve {1 << 60} bytes in {file.folder}"):
        file.tensor(1 << 60)


def test_unknown_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown way 'pigeon'"):
        TierFile(str(tmp_path), "pigeon")
    with pytest.raises(ValueError, match="unknown fault 'fire'"):
        TierFile(str(tmp_path)).set_faults({0: "fire"})


def test_a_forked_process_has_copies(file: TierFile) -> None:
    home = file.tensor(MIB).fill_(1)
    child = os.fork()
    if child == 0:
        right = int(home[17]) == 1 and TierFile.find(home) is None
        home.fill_(2)
        try:
            file.reserve(1)
            right = False
        except PermissionError:
            pass
        del home
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert int(home[17]) == 1


def test_a_disk_is_measured(tmp_path: Path) -> None:
    stores, loads, latency = measure_link(str(tmp_path))
    assert min(stores, loads) > MIB and latency > 0
    assert measure_link(str(tmp_path)) == (stores, loads, latency)
