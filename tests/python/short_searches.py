"""Plans that are searched for with a tenth of the work: most tests look at what a plan does, not at how good it is.

LOWTIDE_FULL=1   all of the work
"""

import os

import pytest

from lowtide import _core


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, where the effort is not given."""
    if not os.environ.get("LOWTIDE_FULL"):
        plan = _core.plan
        monkeypatch.setattr(_core, "plan", lambda *args, **options: plan(*args, **{"effort": 0.1, **options}))
