"""Where plans and times are kept for the next process: a directory of this user, and a store that a fleet shares.

All of it has one small interface (`store.py`). What is read is only ever a proposal: a plan runs after `verify` has
accepted it, and a time changes no memory.
"""
