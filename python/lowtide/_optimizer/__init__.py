"""Optimizers: what their steps do, as operators of the step."""
