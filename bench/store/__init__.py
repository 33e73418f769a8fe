"""What a fleet asks of the plan store."""
