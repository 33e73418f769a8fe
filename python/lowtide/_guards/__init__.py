"""What a step may see: guards, the walk over everything that it reaches, and what has changed."""
