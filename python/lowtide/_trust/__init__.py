"""Whether what Lowtide knows of PyTorch holds for the one that is here."""
