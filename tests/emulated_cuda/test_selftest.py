"""The program `lowtide-selftest`, as somebody with a GPU would run it."""

import json

import torch

from lowtide._selftest import checks
from lowtide._selftest.program import main


def test_every_check_holds(tmp_path, capsys):
    file = tmp_path / "selftest.json"
    assert main(["--device", "cuda", "--size", "16", "--json", str(file)]) == 0, capsys.readouterr().out
    page, found = capsys.readouterr().out, json.loads(file.read_text())
    assert found["device"] == torch.cuda.get_device_name() and found["device"] in page
    assert {one["check"] for one in found["checks"]} == {"bits", "bytes", "budget", "time", "copies"}
    assert page.count("equal to eager's") == 6


def test_a_check_that_does_not_hold_is_told(monkeypatch, capsys):
    monkeypatch.setattr(checks, "_same", lambda one, other: False)
    monkeypatch.setattr(checks, "KINDS", {"perceptron": None})
    assert main(["--device", "cuda", "--size", "16"]) == 1
    assert "**NO**" in capsys.readouterr().out
