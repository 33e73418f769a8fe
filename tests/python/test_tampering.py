"""Profiles and plans on disk are hostile files: whatever they say, a step gives eager's numbers within its budget.

LOWTIDE_FULL=1   1,000 tampered caches instead of one of each kind
"""

import collections
import json

import pytest

from step_models import FULL
from tampering import PLAN_KINDS, PROFILE_KINDS, Bench, drop_temporaries

KINDS = [*PROFILE_KINDS, *PLAN_KINDS]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield Bench(tmp_path_factory.mktemp("caches"), patch)


def test_an_honest_cache_is_used_as_it_is(bench):
    outcome = bench.train(bench.honest)
    assert (outcome["kind"], outcome["profiled"], outcome["misses"]) == ("planned", 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tampered_cache_changes_no_number(bench, kind):
    counts = collections.Counter()
    for seed in range(KINDS.index(kind), 1000 if FULL else len(KINDS), len(KINDS)):
        how, cache = bench.tampered(seed)
        outcome = bench.train(cache)
        print(how, outcome)
        counts[outcome["kind"]] += 1
    print(kind, dict(counts))
    assert set(counts) == {"planned"}, "what does not hold is found out before the step, and taken anew"


def _asks_first_for_a_temporary(requests):
    return bool(requests) and requests[0][1] < 0 and any(result >= 0 for _, result, _ in requests)


def test_a_temporary_never_takes_the_place_of_a_live_operand(bench, tmp_path):
    """Without its temporaries a profile gives the first of them the result's place, where an operand may still lie."""
    (file,) = bench.honest.glob("profiles-*.json")
    stored = json.loads(file.read_text())
    early = {s: row for s, row in stored["profiles"].items() if _asks_first_for_a_temporary(row[0])}
    for row in early.values():
        drop_temporaries(row, None)
    (tmp_path / file.name).write_text(json.dumps(stored))
    outcome = bench.train(tmp_path)
    assert outcome["kind"] == "planned"
    assert outcome["profiled"] >= len(early) > 0, "they are taken anew"
    assert outcome["misses"] == 0
