"""Memory snapshots of PyTorch: read without running anything in them, and packed."""
