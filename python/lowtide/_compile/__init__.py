"""`lowtide.compile`: budgets, captures, plans and what ends in eager."""
