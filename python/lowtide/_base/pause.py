"""An operator at which a step can pause, for a value that Python needs before it can say how the step goes on.

It gives a copy of the value. The memory that the step writes and leaves behind is read too, for the order alone: writes
that come before the pause are done then, and those that come after it are not.
"""

from __future__ import annotations

import torch

from .. import _torch  # noqa: F401  # has the operator

PAUSE = torch.ops.lowtide.pause.default
