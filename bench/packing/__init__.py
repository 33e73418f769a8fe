"""Where buffers lie: arenas and the time to find them."""
