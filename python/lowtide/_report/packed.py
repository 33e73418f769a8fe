"""The numbers of a page as its scripts read them: columns, as JSON, deflated, in base 64."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any

from .._base.graph_file import GraphFile
from . import bands
from .contents import Contents
from .document import clean
from .source_lines import short
from .timeline import WORKSPACE, Timeline


class _Texts:
    """Each text once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self._numbers.setdefault(text, len(self._numbers)) for text in texts]

    def all(self) -> list[str]:
        return [clean(text) for text in self._numbers]


def packed(contents: Contents) -> str:
    """What `readData` of data.js reads. Letters, digits and +/= alone: no text in it can end the element it is in."""
    file, texts = contents.file, _Texts()
    fields: dict[str, Any] = {
        "bands": contents.band_names,
        "workspaces": bands.WORKSPACES,
        "ops": {
            "names": texts.numbers(op["name"] for op in file.ops),
            "sources": texts.numbers(short(op.get("source", "")) for op in file.ops),
            "modules": texts.numbers(op.get("module", "") for op in file.ops),
        },
        "buffers": {
            "names": texts.numbers(buffer.get("name", "") for buffer in file.buffers),
            "sizes": [buffer["size"] for buffer in file.buffers],
            "bands": contents.band_of,
        },
        "plans": [_plan(contents.eager, file), _plan(contents.planned, file)],
    }
    fields["texts"] = texts.all()
    return base64.b64encode(zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 9)).decode()


def _plan(timeline: Timeline, file: GraphFile) -> dict[str, Any]:
    """Begins are counted from the block before, and lives from their begin; a size of 0 is that of the buffer."""
    blocks = timeline.blocks
    return {
        "name": timeline.name,
        "order": timeline.order,
        "times": timeline.times,
        "arena": timeline.plan.arena_bytes,
        "resident": timeline.resident,
        "buffers": blocks.buffers,
        "begins": [begin - before for before, begin in zip([0, *blocks.begins], blocks.begins, strict=False)],
        "lasts": [end - begin for begin, end in zip(blocks.begins, blocks.ends, strict=True)],
        "offsets": blocks.offsets,
        "sizes": [
            0 if buffer != WORKSPACE and size == file.buffers[buffer]["size"] else size
            for buffer, size in zip(blocks.buffers, blocks.sizes, strict=True)
        ],
    }
