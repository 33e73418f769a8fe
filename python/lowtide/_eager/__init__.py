"""What `compile`, `adapt` and `replay` give where nothing can be planned: eager code behind the same face."""
