"""The figures of a compiled step."""

from __future__ import annotations

from typing import TypedDict


class Stats(TypedDict):
    """What `step.stats()` gives; bytes are allocator bytes."""

    calls: int
    captures: int
    eager_calls: int
    eager_bytes: int  # an estimate, of which budgets are shares: resident, plus what is alive at once in program order
    budget_bytes: int  # the memory budget in bytes; 0 if there is none
    planned_bytes: int  # resident, arena and update
    resident_bytes: int  # the model's and the optimizers' tensors, the batch and what the caller keeps
    arena_bytes: int
    update_bytes: int  # what rules of optimizers allocate beside the plan, where they run as they are
    gradient_bytes: int  # of resident: gradients that the function leaves in `.grad`
    served_bytes: int  # the highest arena address served in the last step
    misses: int  # requests outside the plan, over all steps
    unplanned_bytes: int  # most live bytes outside the plan, over all steps
    escapes: list[str]
    step_seconds: float  # median, of the operators together
    step_time_ratio: float  # of that median to the time that the plan counts for its operators
    outside_seconds: float  # what a step takes outside its operators, if that was known when it was planned
    predicted_seconds: float  # the plan's time for the operators, and what the step takes outside of them
    profiled_ops: int
    operators_in_parts: int
    exact_in_parts: int  # of those: whose parts are known to have the bits of the whole
    planning_seconds: float  # in all, of all plans
