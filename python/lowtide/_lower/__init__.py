"""Lowering: from a recording to profiled operators and a graph that can be planned."""
