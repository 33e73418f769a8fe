"""Operators in parts, so that their operands need not be there whole."""
