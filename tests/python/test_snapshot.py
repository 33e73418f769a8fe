"""`lowtide.snapshot` and the program: what a snapshot says, and that no file can make it do anything else.

LOWTIDE_FULL=1   20,000 files that are damaged or meant ill, instead of 400
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import lowtide
from browser import browser, needs_browser
from lowtide._snapshot import program, recorded
from lowtide._snapshot.figures import Figures
from lowtide._snapshot.places import Place, Places
from lowtide._snapshot.planned import Planned
from lowtide._snapshot.unpickling import plain_data
from snapshots import MIB, Recorder, spoiled_bytes, spoiled_records
from snapshots import recorded as recorded_at_random
from test_report import HOSTILE, Page, violations

FULL = os.environ.get("LOWTIDE_FULL") == "1"


def figures_of(made: Recorder) -> Figures:
    (device,) = recorded.devices_of(made.snapshot())
    return Figures(device)


def write(path: Path, snapshot: Any) -> Path:
    path.write_bytes(snapshot if isinstance(snapshot, bytes) else pickle.dumps(snapshot))
    return path


# -- what it says -----------------------------------------------------------------------------------------------------


def fragmented() -> Recorder:
    """Four blocks of 1 MiB, every other one of which is freed; then one of 2 MiB, which fits in neither hole."""
    made = Recorder()
    made.record()
    blocks = [made.allocate(MIB, line=1) for _ in range(4)]
    made.free(blocks[0])
    made.free(blocks[2])
    made.allocate(2 * MIB, line=2, function="backward")
    return made


def test_what_fragmentation_costs() -> None:
    found = figures_of(fragmented())
    assert found.alive == [MIB, 2 * MIB, 3 * MIB, 4 * MIB, 4 * MIB]
    assert (found.peak_reserved_bytes, found.peak_bytes) == (6 * MIB, 4 * MIB)
    # Packed, the blocks that are freed lie side by side: the bound is the peak, and it is reached.
    assert (found.packed.arena_bytes, found.packed.bound_bytes) == (4 * MIB, 4 * MIB)
    assert found.fragmentation_bytes == 2 * MIB
    fields = found.to_dict(top=5)
    assert [(holder["source"], holder["bytes"]) for holder in fields["holders"]] == [("/home/a/train.py:1", 4 * MIB)]
    assert fields["complete"] and fields["allocations"] == 5


def test_peaks_are_the_allocators() -> None:
    for seed in range(60):
        made = recorded_at_random(seed, before=seed % 3 * 8)
        found = figures_of(made)
        assert (found.peak_bytes, found.peak_reserved_bytes) == (made.peak_requested, made.peak_reserved), seed
        assert (found.requested_bytes, found.reserved_bytes) == (made.requested, made.reserved)
        assert found.peak_bytes <= found.packed.bound_bytes <= found.packed.arena_bytes
        assert sum(holder.bytes for holder in found.holders) == found.peak_bytes
        planned = Planned(found)  # verified, both of them
        was, packed = planned.as_it_was(), planned.packed()
        assert was.peak_bytes == packed.peak_bytes == found.peak_bytes == planned.graph.program_peak_bytes
        assert packed.arena_bytes == found.packed.arena_bytes <= was.arena_bytes


def test_blocks_of_segments_that_are_gone_are_refused() -> None:
    made = Recorder()
    made.record()
    made.free(made.allocate(4 * MIB, line=1))
    del made.segments[:]
    assert made.events is not None
    made.events[:] = [event for event in made.events if event["action"] != "segment_alloc"]
    with pytest.raises(lowtide.InvalidSnapshotError, match="is in no segment"):
        figures_of(made)


def test_allocations_that_were_skipped_in_memory_that_was_there_are_refused() -> None:
    """Of 3000 bytes, and later of 100 in the midst of them: both would have been there from the beginning."""
    made = Recorder()
    first = made.allocate(3000, line=1)
    made.record()
    made.free(first)
    assert figures_of(made).alive == [3000] and made.events is not None
    made.events += [{**event, "addr": first + 1024, "size": 100} for event in made.events]
    with pytest.raises(lowtide.InvalidSnapshotError, match="overlaps another one from before the recording"):
        figures_of(made)


def test_memory_from_before_the_recording() -> None:
    made = Recorder()
    kept, freed = made.allocate(1000, line=1), made.allocate(2000, line=2)
    made.record()
    made.free(freed)
    made.allocate(500, line=3)
    found = figures_of(made)
    assert found.alive == [3000, 1500] and not found.to_dict(1)["complete"]
    # Of what was freed nobody knows the line any more; what is still there has it in the snapshot itself.
    assert [(one.place.source, one.bytes, one.is_from_before) for one in found.holders] == [
        ("", 2000, True),
        ("/home/a/train.py:1", 1000, True),
    ]
    made.free(kept)
    assert figures_of(made).alive == [3000, 1500]


def test_memory_that_ran_out_is_told() -> None:
    made = fragmented()
    assert made.events is not None
    frames = made.events[0]["frames"]
    made.events.append(
        {"action": "oom", "size": 3 * MIB, "device_free": MIB, "stream": 0, "time_us": 9, "frames": frames}
    )
    said = str(lowtide.Snapshot(figures_of(made), "x"))
    assert "ran out of memory once: 3.00 MiB were asked for, 1.00 MiB of the device were free" in said


def test_without_a_history() -> None:
    made = Recorder()
    made.allocate(1000, line=1)
    made.allocate(2000, line=2)
    found = figures_of(made)
    assert found.alive == [3000] and found.packed.arena_bytes == 3024  # 1000 is no multiple of 512
    assert "no history" in str(lowtide.Snapshot(found, "x"))


def test_a_ring_of_events_that_has_wrapped() -> None:
    """Events that are gone change what is known of the beginning, never what is in use."""
    made = recorded_at_random(5, allocations=200)
    whole = figures_of(made)
    assert made.events is not None
    for kept in (0, 1, 10, 100):
        del made.events[: len(made.events) - kept]
        found = figures_of(made)
        assert found.requested_bytes == whole.requested_bytes and found.peak_bytes <= whole.peak_bytes
        made = recorded_at_random(5, allocations=200)
        assert made.events is not None


def test_places() -> None:
    torch, mine = "/x/lib/python3.11/site-packages/torch/nn/functional.py", "/home/a/train.py"

    def frame(name: str, file: str = "", line: int = 0) -> dict[str, Any]:
        return {"name": name, "filename": file, "line": line}

    inner, outer = frame("at::_ops::addmm::redispatch(x)"), frame("at::_ops::linear::call(x)")
    node = frame("torch::autograd::generated::AddmmBackward0_apply_functional(x)")
    here, workspace = frame("f", mine, 4), frame("at::cuda::getNewWorkspace()")
    model = "/x/lib/python3.11/site-packages/timm/a.py"
    for frames, place in [
        ([inner, outer, frame("linear", torch, 3), here, frame("g", mine, 5)], Place(f"{mine}:4", "f", "aten::linear")),
        ([inner, node, frame("torch::autograd::Node::operator()")], Place(op="AddmmBackward0")),
        ([workspace, inner, outer, here], Place(f"{mine}:4", "f", "getNewWorkspace")),
        ([frame("f", "/x/lib/python3.11/contextlib.py", 1), frame("<lambda>", "<string>", 1)], Place()),
        ([frame("f", model, 1)], Place(f"{model}:1", "f")),
        ([frame("f", "C:\\me\\train.py", 1)], Place("C:\\me\\train.py:1", "f")),
        ([], Place()),
        (None, Place()),
        ([1, {}, {"name": 3, "filename": "a.py", "line": 1}], Place()),
    ]:
        assert Places().place_of(frames) == place


def without_a_free(snapshot: Any) -> None:
    trace = snapshot["device_traces"][0]
    del trace[next(number for number, event in enumerate(trace) if event["action"] == "free_completed")]


def allocated_twice(snapshot: Any) -> None:
    trace = snapshot["device_traces"][0]
    trace.append(next(dict(event) for event in reversed(trace) if event["action"] == "alloc"))


def a_segment_twice(snapshot: Any) -> None:
    first = snapshot["segments"][0]
    snapshot["segments"].append({**first, "blocks": [dict(block) for block in first["blocks"]]})


def without(*actions: str) -> Any:
    """As `skip_actions` leaves them out."""

    def change(snapshot: Any) -> None:
        snapshot["device_traces"][0][:] = [one for one in snapshot["device_traces"][0] if one["action"] not in actions]

    return change


def without_the_end_of_a_segment(snapshot: Any) -> None:
    """It was given back, and nothing says so."""
    trace = snapshot["device_traces"][0]
    trace.append({**trace[0], "addr": trace[0]["addr"] + (1 << 40), "size": 0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_a_free, "is not in use in the end, as the trace says: events are missing"),
        (allocated_twice, "is allocated while it is in use: events are missing"),
        (a_segment_twice, "reaches into it"),
        (without("alloc"), "allocates nothing in it: events are missing; was something skipped with skip_actions"),
        (without("free_completed"), "is not in use in the end, as the trace says: events are missing"),
        (without_the_end_of_a_segment, "begins a segment that is not there in the end: events are missing"),
        (lambda s: s["device_traces"][0].append(s["device_traces"][0][0]), "the same dict is there twice"),
        (lambda s: s["segments"][0]["blocks"].pop(), "total_size is 2097152"),
        (lambda s: s["segments"][0].update(active_size=1), "active_size is 1, its blocks have 1048576"),
        (lambda s: s["segments"][0].update(address=1 << 70), "address: expected a number from 0 to"),
        (lambda s: s["segments"][0]["blocks"][0].update(state="x" * 10**6), r"expected one of .*, got 'x{40}'"),
        (lambda s: s.pop("segments"), "expected what torch.cuda.memory._dump_snapshot writes"),
    ],
)
def test_what_cannot_be_so_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    snapshot = fragmented().snapshot()
    change(snapshot)
    with pytest.raises(lowtide.InvalidSnapshotError, match=message):
        lowtide.snapshot(write(tmp_path / "trace.pickle", snapshot))


def test_snapshots_that_are_no_files() -> None:
    found = lowtide.snapshot(fragmented().snapshot())
    assert found.figures()["peak_reserved_bytes"] == 6 * MIB and "Memory of a snapshot" in found.html
    for wrong in ([], 3, None):
        with pytest.raises(TypeError):
            lowtide.snapshot(wrong)  # type: ignore[arg-type]


def test_blocks_of_older_versions_have_no_address() -> None:
    snapshot = fragmented().snapshot()
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            del block["address"]
    assert lowtide.snapshot(snapshot).figures() == lowtide.snapshot(fragmented().snapshot()).figures()


def test_several_devices(tmp_path: Path) -> None:
    first, second = fragmented().snapshot(), recorded_at_random(1).snapshot()
    for segment in second["segments"]:
        segment["device"] = 1
    both = {
        "segments": first["segments"] + second["segments"],
        "device_traces": first["device_traces"] + second["device_traces"],
    }
    path = write(tmp_path / "trace.pickle", both)
    assert lowtide.snapshot(path).figures()["device"] == 1, "the one with the most"
    assert lowtide.snapshot(path, device=0).figures()["peak_reserved_bytes"] == 6 * MIB
    with pytest.raises(ValueError, match="device: expected one that the snapshot tells of, got 2"):
        lowtide.snapshot(path, device=2)


# -- the page and the program -----------------------------------------------------------------------------------------


def test_the_page(tmp_path: Path) -> None:
    made = recorded_at_random(3)
    made.allocate(9 * MIB, line=77, function=HOSTILE)
    found = lowtide.snapshot(write(tmp_path / "trace.pickle", made.snapshot()))
    found.save(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert page.text.startswith("Memory of trace.pickle") and "img" not in {tag for tag, _ in page.tags}
    figures = found.figures()
    for name in ("peak_reserved_bytes", "peak_requested_bytes", "packed_bytes", "packed_bound_bytes"):
        assert lowtide._core.format_bytes(figures[name]) in page.text, name
    assert "/home/a/train.py:77" in page.text and page.fields()["bands"][0] == "before the recording"
    assert [plan["name"] for plan in page.fields()["plans"]] == ["PyTorch's allocator", "packed"]
    notebook = Page(found._repr_html_())
    assert "svg" in {tag for tag, _ in notebook.tags} and not {"script", "img"} & {tag for tag, _ in notebook.tags}


@needs_browser
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    made = recorded_at_random(3)
    lowtide.snapshot(write(tmp_path / "trace.pickle", made.snapshot())).save(tmp_path / "page.html")
    with browser() as window:
        window.open(tmp_path / "page.html")
        assert window.wait_for("ready") == [made.peak_requested] * 2
        assert violations(window) == []
        assert window.log() == []


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("trace.pickle"), fragmented().snapshot())
    assert program.run(["trace.pickle", "-o", "page.html", "--graph", "trace.json"]) == 0
    said = capsys.readouterr().out
    assert "cost      2.00 MiB reserved beyond a packed arena, 33.3 % of all that was\n" in said
    assert "aten::mm in forward, /home/a/train.py:1: 4 blocks" in said
    assert said.endswith("written   page.html\nwritten   trace.json\n")
    assert lowtide.Graph.load("trace.json").program_peak_bytes == 4 * MIB
    assert program.run(["trace.pickle", "--json", "--top", "1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and answer["packed_bytes"] == 4 * MIB and len(answer["holders"]) == 1
    os.mkfifo("pipe")
    write(Path("text.pickle"), b"hello")
    for line, code, message in [
        ("absent.pickle", 5, "FileNotFoundError"),
        ("text.pickle", 5, "InvalidSnapshotError: expected a pickle of protocol 2 or later"),
        ("pipe", 5, "InvalidSnapshotError: pipe: expected a file, got something that may have no end"),
        ("/dev/zero", 5, "InvalidSnapshotError: /dev/zero: expected a file"),
        ("trace.pickle --device 3", 2, "device: expected one that the snapshot tells of, got 3"),
        ("trace.pickle --effort 0", 2, "effort: expected a factor above 0, got 0.0"),
        ("trace.pickle -o absent/page.html", 5, "FileNotFoundError"),
        ("", 2, "the following arguments are required: SNAPSHOT"),
    ]:
        assert program.run(line.split()) == code, line
        assert capsys.readouterr().err.startswith(f"lowtide: error: {message}"), line


# -- files that are damaged or meant ill ------------------------------------------------------------------------------


class Runs:
    """What a pickle that is meant ill would call."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call[0], self._call[1:]


def evil(protocol: int = 4) -> list[bytes]:
    """Pickles that would call something, of every kind that calls."""
    calls = [
        Runs(os.system, "touch owned"),
        Runs(eval, "open('owned', 'w')"),
        Runs(open, "owned", "w"),
        Runs(os.mkdir, "owned"),
    ]
    by_hand = [
        b"cposix\nsystem\n(S'touch owned'\ntR.",
        b"\x80\x02cposix\nsystem\nX\x0b\x00\x00\x00touch owned\x85R.",
        b"\x80\x02(cposix\nsystem\nX\x0b\x00\x00\x00touch ownedo.",
        b"\x80\x02(X\x0b\x00\x00\x00touch ownediposix\nsystem\n.",
        b"\x80\x02X\x05\x00\x00\x00ownedQ.",
        b"\x80\x02Powned\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch owned\x85R.",
        b"\x80\x02}X\x01\x00\x00\x00a}sb.",
        b"\x80\x05\x96\x04\x00\x00\x00\x00\x00\x00\x00abcd.",
        b"\x80\x05\x97.",
    ]
    inside = [pickle.dumps({"segments": [], "device_traces": [call]}, protocol) for call in calls]
    return by_hand + inside + [pickle.dumps(call, protocol) for call in calls]


def bombs() -> dict[str, bytes]:
    """Small files, or files without an end, that stand for much."""
    sixteen = (1 << 60).to_bytes(8, "little")
    shared: Any = []
    for _ in range(64):
        shared = [shared] * 64
    block = {"address": 0, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []}
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 512,
        "allocated_size": 512,
        "active_size": 512,
        "blocks": [block] * 1000,
    }
    return {
        "lists": b"\x80\x04" + b"]" * 1_000_000 + b".",
        "dicts": b"\x80\x04" + b"}" * 1_000_000 + b".",
        "marks": b"\x80\x04" + b"(" * 1_000_000 + b".",
        "deep": b"\x80\x04" + b"]" * 1000 + b"a" * 999 + b".",
        "tuples": b"\x80\x04)" + b"\x85" * 1_000_000 + b".",
        "a string": b"\x80\x04\x8d" + sixteen + b".",
        "a number": b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",
        "a long number": b"\x80\x02\x8b" + (1 << 30).to_bytes(4, "little") + b"\x01" * 1000 + b".",
        "a memo": b"\x80\x02]r\xff\xff\xff\x7f.",
        "digits": b"\x80\x02I" + b"9" * 1_000_000 + b"\n.",
        "a frame": b"\x80\x04\x95" + sixteen + b"N.",
        "laughs": pickle.dumps({"segments": shared, "device_traces": shared}),
        "shared records": pickle.dumps({"segments": [segment] * 1000, "device_traces": []}),
        "itself": b"\x80\x04]\x94h\x00a.",
        "keys": b"\x80\x04}(" + b"K\x01N" * 1000 + b"u.",
        "strings": b"\x80\x04(" + b"\x8c\x03abc" * 100_000 + b"t.",
        "many keys": b"\x80\x04}(" + b"".join(b"\x8c\x05%05xN" % number for number in range(100_000)) + b"u.",
        "remembered": b"\x80\x04]" + b"\x94" * 1_000_000 + b".",
        "no end": b"\x80\x04" + b"N0" * 100_000,
    }


@pytest.fixture
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fails where anything is run, imported or written while a file is read."""
    monkeypatch.chdir(tmp_path)
    sys.addaudithook(_watch)
    _seen.clear()
    yield
    _watching.clear()
    assert _seen == [] and not Path("owned").exists()


_watching: list[bool] = []
_seen: list[str] = []
_FORBIDDEN = (
    "pickle.",
    "os.system",
    "os.exec",
    "os.mkdir",
    "os.posix_spawn",
    "subprocess.",
    "exec",
    "compile",
    "import",
    "socket.",
    "shutil.",
)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (event.startswith(_FORBIDDEN) or (event == "open" and arguments[1] not in (None, "r", "rb"))):
        _seen.append(event)


def read(pickled: bytes) -> str:
    """Empty, or the error. Anything but `InvalidSnapshotError` goes through."""
    _watching.append(True)
    try:
        for device in recorded.devices_of(plain_data(pickled)):
            Figures(device, effort=0.001).to_dict(top=5)
    except lowtide.InvalidSnapshotError as error:
        assert 0 < len(str(error)) < 1000
        return str(error)
    finally:
        _watching.clear()
    return ""


def test_nothing_in_a_pickle_is_ever_run(nothing_runs: Any) -> None:
    for protocol in range(6):
        for pickled in evil(protocol):
            assert re.search(r"got the instruction [A-Z0-9_]+ at byte|protocol 2 or later", read(pickled)), pickled
    assert pickle.loads(evil()[-1]) is None and Path("owned").is_dir(), "they would have"
    Path("owned").rmdir()


def test_small_files_take_little(nothing_runs: Any) -> None:
    for name, pickled in bombs().items():
        tracemalloc.start()
        try:
            assert read(pickled), name
            assert tracemalloc.get_traced_memory()[1] < 500_000 + 20 * len(pickled), name
        finally:
            tracemalloc.stop()


def same_as_pickle(pickled: bytes) -> bool:
    """What was read as data has no instruction that calls: pickle may read it too."""
    try:
        theirs = repr(pickle.loads(pickled))
    except (UnicodeDecodeError, pickle.UnpicklingError):  # letters that are none are replaced; frames are not looked at
        return True
    return b"\xed\xb2\x80" in pickled or repr(plain_data(pickled)) == theirs


def page_or_refusal(pickled: bytes) -> str:
    """Where blocks overlap, that is seen when they are put on the page."""
    try:
        return lowtide.snapshot(plain_data(pickled), effort=0.001).html
    except lowtide.InvalidSnapshotError as error:
        return str(error)


def test_times_that_are_none_are_left_out() -> None:
    for times in ([0, 1 << 62], [1 << 62, 0], [5, 3, 9]):
        snapshot = fragmented().snapshot()
        for event, time in zip(snapshot["device_traces"][0][-2:], times, strict=False):
            event["time_us"] = time
        assert "<!DOCTYPE html>" in lowtide.snapshot(snapshot).html


def test_whatever_a_file_says_it_ends_in_an_answer_or_a_clean_error(nothing_runs: Any) -> None:
    refused = still_right = 0
    honest = [recorded_at_random(seed, allocations=12, before=3).snapshot() for seed in range(8)]
    ill = evil()
    while refused < (20_000 if FULL else 400):
        draw = random.Random(refused + still_right)
        snapshot, kind = draw.choice(honest), draw.randrange(5)
        if kind == 0:
            pickled = draw.choice(ill)
            pickled = spoiled_bytes(pickled, draw) if draw.random() < 0.5 else pickled
        elif kind in (1, 2):
            pickled = spoiled_records(snapshot, draw)
        else:
            pickled = spoiled_bytes(pickle.dumps(snapshot, draw.choice([2, 4, 5])), draw)
        if read(pickled):
            refused += 1
        else:  # a letter of a name may be any other
            still_right += 1
            assert same_as_pickle(pickled)
            assert page_or_refusal(pickled)
    print(f"{refused} refused, {still_right} still snapshots")
