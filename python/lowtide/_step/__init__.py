"""The captured step: its plan, its program, and how it runs."""
