"""Memory for time: what is recomputed under budgets."""
