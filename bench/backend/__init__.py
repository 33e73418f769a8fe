"""Benchmarks of `torch.compile(backend="lowtide")`."""
