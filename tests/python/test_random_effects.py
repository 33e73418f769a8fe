"""Random training scripts with effects in Python leave behind what eager leaves.

LOWTIDE_FULL=1   5,000 comparisons instead of 12
"""

from collections import Counter

import pytest

from random_effects import compare
from step_models import FULL

SEEDS = range(2500) if FULL else range(7, 13)  # two comparisons each
PARTS = 4
NARROW = [910006, 910040, 910054, 910084, 910152]  # sums with more bits than their results, in parts; NaN among them


@pytest.mark.parametrize("part", range(PARTS))
def test_scripts_leave_behind_what_eager_leaves(part):
    counts = Counter()
    differences = [line for seed in SEEDS[part::PARTS] for line in compare(seed, counts)]
    print(dict(counts))
    assert differences == []
    assert counts["planned calls"] > counts["eager calls"]


@pytest.mark.parametrize("seed", NARROW)
def test_narrow_sums_that_parts_would_round_otherwise(seed):
    assert list(compare(seed, Counter())) == []
