"""`lowtide fit`: a program of the Python package that the lowtide program finds on the path."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import lowtide
from lowtide._fit import program as fit_program
from lowtide._fit import target as fit_target
from program import PATH, run

ROOT = Path(__file__).parents[2]
MAKER = """
import torch

def make():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).tanh().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return {"function": step, "model": model, "optimizer": optimizer, "example": (torch.randn(32, 64),)}

def leaving():
    raise SystemExit("bye")

def broken():
    made = make()
    made["function"] = lambda x: made["model"](x).sum().item()
    return made

nothing = 3
"""


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "maker.py"
    path.write_text(MAKER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = fit_program.run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_it_says_what_python_says(maker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("maker.py:make", "maker:make"):
        code, data = answer(capsys, target, "--device", "L4", "--one-size")
        report = lowtide.fit(fit_target.load(target), device="L4", largest=False)
        assert (code, data) == (0, {"ok": True, **json.loads(json.dumps(report.to_dict()))})
        assert fit_program.run([target, "--device", "L4", "--one-size"]) == 0
        assert capsys.readouterr().out == f"{report}\n"


def test_options_reach_it(maker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "2MiB", "--reserve", "1MiB", "--batch", "64", "--slowdown", "0.5", "--keep-grads"]
    code, data = answer(capsys, "maker.py:make", *options)
    assert (code, data["ok"], data["fits"]) == (0, True, True)
    assert (data["capacity_bytes"], data["reserve_bytes"], data["batch"]) == (2 * 2**20, 2**20, 64)
    assert data["largest_batch"]["slowdown"] == 0.5 and data["keep_grads"] is True


def test_a_length_is_asked_for(maker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = maker.read_text().replace("(torch.randn(32, 64),)", "lambda batch, length: torch.randn(batch, length, 64)")
    maker.write_text(text.replace('"example": ', '"batch": 2, "length": 3, "example": '))
    for options, wanted in ((["--one-size"], (2, 3)), (["--length", "5"], (2, 5))):
        code, data = answer(capsys, "maker.py:make", "--device", "24MiB", "--reserve", "1MiB", *options)
        assert (code, data["batch"], data["length"]) == (0, *wanted)
        assert (data["largest_length"] is None) is (options == ["--one-size"])
    assert 5 < data["largest_length"]["plain"] <= data["largest_length"]["planned"]


def test_what_does_not_fit_has_an_exit_code(maker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = answer(capsys, "maker.py:make", "--device", "4KiB", "--reserve", "0", "--one-size")
    assert (code, data["ok"], data["fits"]) == (3, True, False)


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["maker.py", "--device", "L4"], 2, "'maker.py' is not MODULE:FUNCTION"),
        (["maker.py:make"], 2, "the following arguments are required: --device"),
        (["maker.py:make", "--device", "B300"], 2, "no device is called 'B300'"),
        (["maker.py:nothing", "--device", "L4"], 2, "maker.py has no function nothing"),
        (["absent.py:make", "--device", "L4"], 5, "FileNotFoundError: "),
        (["absent:make", "--device", "L4"], 5, "ModuleNotFoundError: No module named 'absent'"),
        (["maker.py:broken", "--device", "L4"], 5, "CaptureError: at batch 32: "),
        (["maker.py:leaving", "--device", "L4"], 5, "SystemExit: bye ("),
        (["maker.py:make", "--device", "0"], 2, "a reserve of 1GiB leaves nothing of 0 B"),
        (["maker.py:make", "--device", "1e400GiB"], 2, "device: E502: '1e400GiB' is not an amount"),
        (["maker.py:make", "--device", "nan"], 2, "no device is called 'nan'"),
        (["maker.py:make", "--device", "L4", "--reserve=-1"], 2, "reserve: E502: '-1' is not an amount"),
        (["maker.py:make", "--device", "L4", "--allocator", "x"], 2, "E505: "),
        *(
            (["maker.py:make", "--device", "L4", f"--{name}={text}"], 2, f"argument --{name}: expected a {kind}")
            for name, kind, texts in [
                ("batch", "whole number from 1 on, got ", ("0", "-1", "1.5", "nan", "x", "")),
                ("length", "whole number from 1 on, got ", ("0",)),
                ("slowdown", "share from 0 on, such as 0.1, got ", ("nan", "inf", "1e400", "-0.1", "x")),
            ]
            for text in texts
        ),
    ],
)
def test_what_goes_wrong(
    maker: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert fit_program.run(arguments) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"lowtide: error: {message}"), said.err
    assert "lowtide fit --help" in said.err.splitlines()[-1]
    got, data = answer(capsys, *arguments)
    assert (got, data["ok"], data["exit_code"]) == (code, False, code)
    assert data["error"]["message"].startswith(message)


def test_the_lowtide_program_finds_it(maker: Path, tmp_path: Path) -> None:
    """As installed it is beside the others; here it is a script of one line."""
    script = tmp_path / "bin" / "lowtide-fit"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m lowtide._fit.program "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(script.parent), PATH])
    done = run("fit", "maker.py:make", "--device", "L4", "--one-size", cwd=tmp_path, path=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("device     L4: 22.50 GiB, of which 1.00 GiB set aside, batch 32\nPyTorch    fits: ")
    assert re.search(r"^  fit +Say whether a training step fits", run("--help", cwd=tmp_path).stdout, re.MULTILINE)
    assert run("fit", "--help", cwd=tmp_path, path=path).stdout.startswith("usage: lowtide fit ")


@pytest.mark.parametrize(("target", "code"), [("/dev/full", 5), ("", 0)])
def test_an_answer_that_nobody_reads(maker: Path, target: str, code: int) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    out = os.open(target, os.O_WRONLY) if target else write_end
    command = [sys.executable, "-m", "lowtide._fit.program", "maker.py:make", "--device", "L4", "--one-size"]
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True)
    said = "lowtide: error: cannot write to standard output: No space left on device\n" if target else ""
    assert (done.returncode, done.stderr) == (code, said)


def test_examples_of_its_help_are_there() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "lowtide._fit.program", "--help"], capture_output=True, text=True, check=True
    ).stdout
    examples = [line for line in text.splitlines() if line.startswith("  lowtide fit ")]
    assert examples and max(map(len, text.splitlines())) <= 120
    for line in examples:
        file, _, function = line.split()[2].partition(":")
        assert f"def {function}()" in (ROOT / file).read_text()
