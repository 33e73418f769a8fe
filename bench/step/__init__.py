"""A training step, planned and eager: time, memory, predictions."""
