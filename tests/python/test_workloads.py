"""The training steps that fission is measured on: all of them can be captured, and run in parts along the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

import lowtide
from bench.fission import workloads
from bench.fission.batch_axes import BatchAxes
from lowtide._base.graph_file import GraphFile
from step_models import FULL

FEW = ("resnet50", "bert_base", "gpt_neo_1.3b")  # of each kind one
NAMES = [workload.name for workload in workloads.WORKLOADS]


@pytest.mark.parametrize("name", NAMES if FULL else FEW)
def test_all_but_batch_normalization_runs_in_parts_along_the_batch(name: str) -> None:
    workload = workloads.named(name)
    graph = workloads.graph_of(workload, "A100", small=True)
    axes = BatchAxes(graph, GraphFile(graph), workloads.graph_of(workload, None, small=True, times=2))
    norms = {"native_batch_norm.default", "native_batch_norm_backward.default"}
    assert set(axes.whole()) == (norms if name == "resnet50" else set())
    assert 0 < axes.bytes_along_batch <= axes.bytes_with_axes <= axes.operand_bytes


def test_the_command_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workloads.main([str(tmp_path), "--small", "--device", "RTX 3090", "unet"])
    graph = lowtide.Graph.load(tmp_path / "unet-rtx3090.json.zst")
    assert graph.has_axes and f"| unet | RTX 3090 | {graph.num_ops} |" in capsys.readouterr().out


def test_steps_have_no_random_numbers_and_one_update_each() -> None:
    graph = workloads.graph_of(workloads.named("bert_base"), None, small=True)
    names = [graph.op_name(op) for op in range(graph.num_ops)]
    assert not any("dropout" in name or "bernoulli" in name for name in names)
    parameters = sum(1 for buffer in GraphFile(graph).buffers if buffer.get("role") == "parameter")
    assert names.count("aten.add_.Tensor") == parameters > 0
