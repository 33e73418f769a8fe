"""Batches of any length within a budget."""
