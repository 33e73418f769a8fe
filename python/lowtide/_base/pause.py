"""Operators of Lowtide's own at which the run of a program can stop.

At a pause, Python needs a value before it can say how the step goes on: it gives a copy of the value. The memory that
the step writes and leaves behind is read too, for the order alone: writes that come before the pause are done then, and
those that come after it are not.

At its turn, a region has been forward and is not yet backward. It does nothing; for the order it reads what the forward
pass leaves behind, and writes the tangents.

Where gradients stay in the arena until the caller lets go of them, the last operator hands them out. It does nothing;
it reads them, so that they live up to it.
"""

from __future__ import annotations

import torch

from .. import _torch  # noqa: F401  # has the operators

PAUSE = torch.ops.lowtide.pause.default
TURN = torch.ops.lowtide.turn.default
HAND_OUT = torch.ops.lowtide.hand_out.default
