"""Capturing: a step runs on fake tensors and leaves a recording of its calls."""
