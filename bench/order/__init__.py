"""When operators run: peaks of orders beside proven bounds and other planners."""
