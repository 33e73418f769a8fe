"""`lowtide.diff` and the programs `lowtide-diff` and `lowtide-check`: what the peak of a step gained and lost."""
