"""`lowtide.adapt`: what to recompute, decided for each batch."""
