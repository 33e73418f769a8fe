"""docs/errors.md: every code has an entry, and its samples are the messages that the library gives."""

import re
from pathlib import Path

import pytest
import torch

import lowtide
from lowtide import _core, errors

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^  (\w+) = (\d+),", re.MULTILINE)
ENTRY = re.compile(r"^### E(\d+): (\w+)\n\n    (.+)\n\nCause: (?:.+\n)*?.*\bDo: ", re.MULTILINE)
CASE = re.compile(r'\{"\w+", ErrorCode::(\w+),\s+((?:"[^"]*"\s*)+),')

STATUS = (ROOT / "include/lowtide/status.h").read_text()
PAGE = (ROOT / "docs/errors.md").read_text()
SAMPLES = {f"E{number}": sample for number, _, sample in ENTRY.findall(PAGE)}


def builder_with(name: str, **options) -> tuple[_core.GraphBuilder, int]:
    builder = _core.GraphBuilder()
    options = {"resident": True, "initial": True, "role": "parameter", "name": name, **options}
    return builder, builder.buffer(4096, **options)


def planned() -> tuple[_core.GraphBuilder, int]:
    return builder_with("h", resident=False, initial=False, role="activation")


def small_step() -> _core.Graph:
    builder, w = builder_with("w")
    h = builder.buffer(4096, resident=False, initial=False, role="activation", name="h")
    builder.op("mm", [builder.value(w, "float32", [1024])], [h], time_ns=10, source="train.py:3")
    return builder.build()


def unknown_id():
    _core.GraphBuilder().op("mul", [7], [])


def invalid_buffer():
    builder_with("h", resident=False)


def read_of_nothing():
    builder, h = planned()
    builder.value(h, "float32", [1])


def stale_read():
    builder, w = builder_with("w")
    value = builder.value(w, "float32", [1024])
    builder.op("add_", [value], [w])
    builder.op("mul", [value], [])


def duplicate_write():
    builder, h = planned()
    builder.op("copy", [], [h, h])


def invalid_shape():
    builder, w = builder_with("w")
    builder.value(w, "float32", [8, -1])


def size_overflow():
    _core.GraphBuilder().buffer(1 << 63, resident=False, initial=False, role="activation", name="h")


def edge_against_program():
    builder = _core.GraphBuilder()
    builder.order(*reversed([builder.op(name, [], []) for name in ("a", "b")]))


def never_written():
    planned()[0].build()


def invalid_reuse():
    builder, h = planned()
    builder.op("mm", [], [h])
    y = builder.buffer(64, resident=False, initial=False, role="activation", name="y")
    builder.reuse(builder.op("relu", [builder.value(h, "float32", [1024])], [y]), h, y)


def invalid_axis():
    builder, h = planned()
    builder.op("mm", [], [h])
    y = builder.buffer(96, resident=False, initial=False, role="activation", name="y")
    relu = builder.op("relu", [builder.value(h, "float32", [1024])], [y])
    builder.axis(relu, [1024], [64], [(2, 0, 0, True)])


def load_graph(name: str, text: bytes) -> None:
    Path(name).write_bytes(text)
    _core.Graph.load(name)


def file_too_large():
    # 399 blocks of zstd that each stand for 128 KiB of spaces.
    frame = b"\x28\xb5\x2f\xfd\x00\x38"
    for block in range(399):
        frame += ((131072 << 3) | (1 << 1) | (block == 398)).to_bytes(3, "little") + b" "
    load_graph("bomb.json.zst", frame)


def unverified_plan():
    _core.plan(small_step()).save("plan.json")
    _core.Plan.load("plan.json").save("again.json")


def other_graph():
    builder = _core.GraphBuilder()
    builder.op("mm", [], [])
    _core.verify(builder.build(), _core.plan(small_step()))


def full_device() -> None:
    allocator = _core.CachingAllocator(capacity=50 * 2**20)
    allocator.allocate(30 * 2**20)
    allocator.allocate(40 * 2**20)


def small_budget() -> None:
    layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(32, 64, bias=False)) for _ in range(2)))
    lowtide.adapt(torch.nn.Sequential(layers, torch.nn.Linear(32, 2)), memory_budget=20480)


MAKERS = {
    "E101": unknown_id,
    "E102": invalid_buffer,
    "E103": read_of_nothing,
    "E104": stale_read,
    "E105": duplicate_write,
    "E106": invalid_shape,
    "E107": size_overflow,
    "E108": edge_against_program,
    "E109": never_written,
    "E110": invalid_reuse,
    "E111": invalid_axis,
    "E225": other_graph,
    "E301": lambda: _core.plan(small_step(), memory_budget=4096),
    "E302": lambda: _core.plan(small_step(), latency_budget_ns=5),
    "E304": small_budget,
    "E402": file_too_large,
    "E404": full_device,
    "E501": lambda: _core.plan(small_step(), layout="best"),
    "E502": lambda: _core.parse_bytes("6 elephants"),
    "E503": lambda: _core.plan(small_step(), memory_budget=1.5),
    "E505": lambda: _core.CachingAllocator("max_split_size_mb:19"),
    "E506": lambda: _core.CachingAllocator().free(0),
    "E601": lambda: load_graph("plan.json", b'{"format":"lowtide-plan","version":1}'),
    "E602": lambda: load_graph("step.json", b'{"format":"lowtide-graph","version":2}'),
    "E603": lambda: load_graph(
        "step.json", b'{"format":"lowtide-graph","version":1,"ops":[{"name":"mul","reads":[0,0,"x"]}]}'
    ),
    "E604": lambda: _core.Graph.load("none.json"),
    "E605": unverified_plan,
}


def test_every_code_has_an_entry() -> None:
    entries = [(name, number) for number, name, _ in ENTRY.findall(PAGE)]
    assert entries == CODE.findall(STATUS)


@pytest.mark.parametrize("code", MAKERS)
def test_sample_is_what_is_raised(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((errors.LowtideError, ValueError, FileNotFoundError)) as raised:
        MAKERS[code]()
    assert str(raised.value).removeprefix("[Errno 2] ") == f"{code}: {SAMPLES[code]}"


def test_samples_of_wrong_plans_are_those_of_the_verifier() -> None:
    """The tests of verify() in C++ hold it to these messages, or to a part of them."""
    cases: dict[str, list[str]] = {}
    for test in ("verify_test.cc", "verify_transfers_test.cc", "verify_parts_test.cc"):
        for name, literals in CASE.findall((ROOT / "tests/cpp" / test).read_text()):
            cases.setdefault(name, []).append("".join(re.findall(r'"([^"]*)"', literals)))
    for name, number in CODE.findall(STATUS):
        if number.startswith("2"):
            assert any(message in SAMPLES[f"E{number}"] for message in cases[name]), name


def test_every_sample_is_held_to_something() -> None:
    unchecked = {code for code in SAMPLES if code not in MAKERS and not code.startswith("E2")}
    # Four thousand million ops would have to be made; only C++ sets the other limit (layout_test.cc).
    assert unchecked == {"E303", "E401", "E403", "E405", "E504"}
    packing = (ROOT / "tests/cpp/packing_test.cc").read_text()
    assert SAMPLES["E303"] in packing and SAMPLES["E504"] in packing
