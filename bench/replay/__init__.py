"""Eager loops from one arena."""
