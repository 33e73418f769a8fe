"""`lowtide.replay`: eager iterations from one arena."""
