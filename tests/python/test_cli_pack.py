"""lowtide pack: offsets for the buffers of a CSV file, and pictures of them."""

import csv
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from program import CLEAR, on_terminal, run

ROOT = Path(__file__).parents[2]
HARD = ROOT / "bench" / "data" / "minimalloc"
SVG = "{http://www.w3.org/2000/svg}"

# The picture of include/lowtide/layout.h: at 2, the lives of b, c and d meet.
STAIRCASE = "id,lower,upper,size\na,0,2,64\nb,0,4,64\nc,2,3,64\nd,2,4,64\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "buffers.csv").write_text(STAIRCASE)
    return tmp_path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def arena(path: Path) -> int:
    """Where the highest buffer ends; no two that live together may share a byte."""
    rows = [{key: int(row[key]) for key in ("lower", "upper", "size", "offset")} for row in table(path)]
    for a, b in itertools.combinations(rows, 2):
        together = a["lower"] < b["upper"] and b["lower"] < a["upper"]
        apart = a["offset"] + a["size"] <= b["offset"] or b["offset"] + b["size"] <= a["offset"]
        assert apart or not together, (a, b)
    return max(row["offset"] + row["size"] for row in rows)


def test_summary(files: Path) -> None:
    done = run("pack", "buffers.csv", "-o", "packed.csv", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "packed    4 buffers by first_fit\n"
        "peak      192 B (192 bytes) alive at once\n"
        "arena     192 B (192 bytes), proven smallest\n"
        "bound     192 B (192 bytes)\n"
        "written   packed.csv\n"
    )
    assert arena(files / "packed.csv") == 192


def test_documented_example(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    match = re.search(r"^    \$ lowtide (pack .*)\n((?:    .*\n)+)", page, re.MULTILINE)
    assert match
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert run(*match[1].split(), cwd=tmp_path).stdout == match[2].replace("    ", "", 1).replace("\n    ", "\n")


def test_documented_format(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text().partition("## Buffers")[2]
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    message = run("pack", "/dev/null", cwd=tmp_path).stderr
    columns = message.partition("name the columns ")[2].partition(": ")[0].replace(" and, if they are wanted", "")
    assert re.findall(r"`(\w+)`", " ".join(rows)) == re.split(", | and ", columns)

    example = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert example
    (tmp_path / "example.csv").write_text(example[1])
    assert run("pack", "example.csv", "-o", "packed.csv", cwd=tmp_path).returncode == 0
    assert arena(tmp_path / "packed.csv") == 4096 + 2 * 1024


def test_output_is_the_input_with_offsets(files: Path) -> None:
    text = "upper,id,lower,size,offset,alignment\n7,fixed,1,10,96,\n 9 ,free one,0,5,,32\n3,gone,3,8,,\n"
    (files / "more.csv").write_text(text)
    assert run("pack", "more.csv", "-o", "packed.csv", cwd=files).returncode == 0
    assert (files / "packed.csv").read_text() == (
        "id,lower,upper,size,alignment,offset\nfixed,1,7,10,1,96\nfree one,0,9,5,32,0\ngone,3,3,8,1,0\n"
    )
    # What was written is a problem again, in which everything is fixed.
    assert run("pack", "packed.csv", "-o", "again.csv", cwd=files).returncode == 0
    assert (files / "again.csv").read_bytes() == (files / "packed.csv").read_bytes()


def test_json(files: Path) -> None:
    answer = json.loads(run("pack", "buffers.csv", "--json", "--svg", "packed.svg", cwd=files).stdout)
    assert 0 <= answer.pop("seconds") < 10
    assert answer == {
        "ok": True,
        "file": "buffers.csv",
        "output": None,
        "svg": "packed.svg",
        "buffers": 4,
        "arena_bytes": 192,
        "peak_bytes": 192,
        "bound_bytes": 192,
        "gap": 0,
        "proven": True,
        "algorithm": "first_fit",
    }


def test_json_files(files: Path) -> None:
    assert run("pack", "buffers.csv", "-o", "packed.csv", cwd=files).returncode == 0
    assert run("pack", "buffers.csv", "-o", "packed.json", cwd=files).returncode == 0
    rows = json.loads((files / "packed.json").read_text())["buffers"]
    assert [{key: str(value) for key, value in row.items()} for row in rows] == table(files / "packed.csv")

    free = [{key: row[key] for key in row if key != "offset"} for row in rows]
    (files / "buffers.json").write_text(json.dumps({"buffers": free}, indent=2))
    assert run("pack", "buffers.json", "-o", "again.csv", cwd=files).returncode == 0
    assert (files / "again.csv").read_bytes() == (files / "packed.csv").read_bytes()

    (files / "buffers.json").write_text(json.dumps({"buffers": [*free, {"id": "e", "lower": 0, "upper": "later"}]}))
    done = run("pack", "buffers.json", cwd=files)
    assert done.returncode == 5
    assert "error E603: buffers.json: buffers[4].upper: expected a whole number" in done.stderr


def test_the_documented_files_are_the_same(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text().partition("\n## Buffers\n")[2]
    for kind in ("text", "json"):
        example = page.partition(f"```{kind}\n")[2].partition("```")[0]
        (tmp_path / kind).write_text(example)
        assert run("pack", kind, "-o", f"{kind}.csv", cwd=tmp_path).returncode == 0
    assert (tmp_path / "text.csv").read_bytes() == (tmp_path / "json.csv").read_bytes()


def test_a_hard_one_is_packed_and_proven(files: Path) -> None:
    problem = str(HARD / "A.1048576.csv")
    answer = json.loads(run("pack", problem, "-o", "packed.csv", "--json", cwd=files).stdout)
    assert (answer["arena_bytes"], answer["proven"], answer["gap"]) == (1048576, True, 0)
    assert arena(files / "packed.csv") == 1048576
    packed = table(files / "packed.csv")
    assert [{key: row[key] for key in row if key != "offset"} for row in packed] == table(Path(problem))

    answer = json.loads(run("pack", problem, "--algorithm", "first_fit", "--json", cwd=files).stdout)
    above = answer["arena_bytes"] / 1048576 - 1
    assert above > 0 and answer["gap"] == pytest.approx(above) and not answer["proven"]
    text = run("pack", problem, "--algorithm", "first_fit", cwd=files).stdout
    assert f"bytes), {100 * above:.2f} % above the bound\n" in text


def test_capacity(files: Path) -> None:
    assert (
        "\ncapacity  1.00 KiB (1024 bytes), kept\n"
        in run("pack", "buffers.csv", "--capacity", "1KiB", cwd=files).stdout
    )
    done = run("pack", "buffers.csv", "--capacity", "191", "-o", "packed.csv", cwd=files)
    assert done.returncode == 3 and not (files / "packed.csv").exists()
    assert done.stderr == (
        "lowtide: error E303: no layout fits into 191 bytes: 3 of the 4 buffers already do not, "
        "at least 192 bytes are needed: 'b' 64 B, 'c' 64 B, 'd' 64 B\n"
        "lowtide: a larger --capacity would help, or a shorter life of one of these buffers\n"
    )
    error = json.loads(run("pack", "buffers.csv", "--capacity", "191", "--json", cwd=files).stdout)["error"]
    assert error["bound_bytes"] == 192 and "step" not in error
    assert error["culprits"] == [{"name": name, "role": "buffer", "bytes": 64, "source": ""} for name in "bcd"]

    problem = str(HARD / "A.1048576.csv")
    message = run("pack", problem, "--capacity", "1048575", cwd=files).stderr
    assert re.search(r": '\d+' [\d.]+ KiB, .* and \d+ more\n", message)
    done = run("pack", problem, "--capacity", "1048576", "--work", "50000", cwd=files)
    assert done.returncode == 4 and "more --work or a larger --capacity would help" in done.stderr


def test_threads_change_no_offset_and_time_ends_the_search(files: Path) -> None:
    problem = str(HARD / "J.1048576.csv")
    for threads in ("1", "2"):
        run("pack", problem, "--work", "300000000", "--threads", threads, "-o", f"by{threads}.csv", cwd=files)
    assert (files / "by1.csv").read_bytes() == (files / "by2.csv").read_bytes()
    done = json.loads(run("pack", problem, "--time-limit", "0.3", "--json", cwd=files).stdout)
    assert done["ok"] and done["seconds"] < 3 and not done["proven"]


def test_errors_name_buffers_by_id(files: Path) -> None:
    (files / "clash.csv").write_text("id,lower,upper,size,offset\nfree,0,1,8,\nin item 7,0,2,64,0\nover,1,3,64,32\n")
    message = run("pack", "clash.csv", cwd=files).stderr
    assert "buffers 'in item 7' and 'over' are fixed on the same bytes while both live" in message
    (files / "endless.csv").write_text(f"id,lower,upper,size\nfirst,0,1,{1 << 62}\nsecond,0,1,{1 << 62}\n")
    assert "buffer 'second' of 4611686018427387904 bytes does not fit" in run("pack", "endless.csv", cwd=files).stderr
    (files / "wrong.csv").write_text("id,lower,upper,size\na,0,1,8\nb,0,1,8 kB\n")
    assert "wrong.csv: line 3: size must be a whole number" in run("pack", "wrong.csv", cwd=files).stderr
    assert "begins with the line id,lower,upper,size" in run("pack", "/dev/null", cwd=files).stderr


def test_no_buffers_and_buffers_that_need_no_place(files: Path) -> None:
    for text in ["", "a,5,5,64\n", "a,0,9,0\n"]:
        (files / "few.csv").write_text("id,lower,upper,size\n" + text)
        done = run("pack", "few.csv", "--map", "--svg", "few.svg", "-o", "packed.csv", cwd=files)
        assert (done.returncode, done.stderr) == (0, "")
        assert "arena     0 B (0 bytes), proven smallest\n" in done.stdout
        ElementTree.parse(files / "few.svg")


def test_map(files: Path) -> None:
    lines = run("pack", "buffers.csv", "--map", cwd=files).stdout.partition("\n\n")[2].splitlines()
    assert len(lines) == 24 and all(len(line) == 80 for line in lines)
    assert lines[-1].split() == ["0", "4"] and lines[-3].startswith("       0 B |")
    # 17 columns are one unit of time, and 22 lines 192 bytes.
    picture = [line[12:] for line in lines[:-2]]
    packed = files / "packed.csv"
    assert run("pack", "buffers.csv", "-o", "packed.csv", cwd=files).returncode == 0
    for letter, row in zip("abcd", table(packed), strict=True):
        lower, upper = 17 * int(row["lower"]), 17 * int(row["upper"])
        middle = picture[21 - (int(row["offset"]) + 32) * 22 // 192]
        assert middle[lower:upper] == letter * (upper - lower)
    assert sum(line.count(".") for line in picture) > 0  # above a, and above c's end


def test_map_and_json_exclude_each_other(files: Path) -> None:
    done = run("pack", "buffers.csv", "--map", "--json", cwd=files)
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["code"] == "usage"


def test_map_tells_neighbours_apart(files: Path) -> None:
    rows = [f"b{i},{i},{i + 1},64" for i in range(67)] + ["last,67,68,64"]  # more than there are letters
    (files / "row.csv").write_text("id,lower,upper,size\n" + "\n".join(rows) + "\n")
    text = run("pack", "row.csv", "--map", cwd=files).stdout
    line = text.partition("\n\n")[2].splitlines()[0][12:]
    assert len(line) == 68 and "." not in line
    assert all(one != other for one, other in itertools.pairwise(line))

    (files / "thin.csv").write_text("id,lower,upper,size\nwide,0,1000,64\nthin,999,1000,1\n")
    assert "1 of 2 buffers are too small to be seen" in run("pack", "thin.csv", "--map", cwd=files).stdout


def test_svg(files: Path) -> None:
    (files / "odd.csv").write_bytes(b'id,lower,upper,size,offset\n<&>"\x01\xff,0,2,64,0\nplain,0,4,64,64\n')
    done = run("pack", "odd.csv", "--svg", "odd.svg", cwd=files)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("\ndrawn     odd.svg\n")
    rectangles = ElementTree.parse(files / "odd.svg").findall(f".//{SVG}g/{SVG}rect")
    titles = [rectangle.findtext(f"{SVG}title") for rectangle in rectangles]
    assert titles == [
        '<&>"��: 64 bytes, alive [0, 2), offset 0',
        "plain: 64 bytes, alive [0, 4), offset 64",
    ]
    first, second = ({key: float(r.attrib[key]) for key in ("x", "y", "width", "height")} for r in rectangles)
    assert first["x"] == second["x"] and first["width"] * 2 == second["width"]
    assert first["y"] == second["y"] + second["height"]  # the lower address is lower in the picture
    assert "bound 128 B" in (files / "odd.svg").read_text()
    run("pack", "odd.csv", "--svg", "odd.svg", "--capacity", "1KiB", cwd=files)
    assert "capacity 1.00 KiB" in (files / "odd.svg").read_text()


def test_svg_has_room_for_all_numbers(files: Path) -> None:
    last = (1 << 64) - 1
    (files / "wide.csv").write_text(f"id,lower,upper,size\na,0,{last},64\n")
    done = run("pack", "wide.csv", "--svg", "wide.svg", "--capacity", str(last), "--map", cwd=files)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith(f" {last}\n")
    labels = [text.text for text in ElementTree.parse(files / "wide.svg").iter(f"{SVG}text")]
    assert {"0", str(last // 4), str(last // 2), str(last), "12.00 EiB", "16.00 EiB"} <= set(labels)


def test_svg_of_very_many_buffers_has_the_largest(files: Path) -> None:
    rows = [f"b{i},{i},{i + 1},{64 if i % 2 else 8}" for i in range(40_000)]
    (files / "many.csv").write_text("id,lower,upper,size\n" + "\n".join(rows) + "\n")
    assert run("pack", "many.csv", "--svg", "many.svg", cwd=files).returncode == 0
    picture = ElementTree.parse(files / "many.svg")
    titles = [title.text or "" for title in picture.iter(f"{SVG}title")]
    assert len(titles) == 20_000 and all(": 64 bytes" in title for title in titles)
    assert any("the 20000 largest are drawn" in (text.text or "") for text in picture.iter(f"{SVG}text"))


def test_progress(files: Path) -> None:
    sent = on_terminal("pack", "buffers.csv", "-o", "packed.csv", cwd=files)[2]
    assert sent == f"{CLEAR}reading ...{CLEAR}packing ...{CLEAR}writing ...{CLEAR}"


def test_a_million_buffers(files: Path) -> None:
    with (files / "large.csv").open("w") as file:
        file.write("id,lower,upper,size\n")
        file.writelines(f"buffer {i},{i * 1000},{i * 1000 + 3500},{64 + i % 7}\n" for i in range(1_000_000))
    done = run("pack", "large.csv", "--algorithm", "first_fit", "-o", "packed.csv", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    with (files / "packed.csv").open() as file:
        assert sum(1 for _ in file) == 1_000_001
