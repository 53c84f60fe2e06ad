"""From a request to the engine and back: prompts and settings in, choices, deltas and usage out.

No HTTP here, and no token is decided here.
"""
