"""`lowtide.explain_oom`: who held the memory when it ran out."""
