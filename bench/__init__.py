"""Benchmarks, a folder for each subject, and the models that they share with the tests."""
