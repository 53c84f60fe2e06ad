"""Training data: prompts, the target's answers to them, and what is computed from both.

It trains nothing and loads no model by itself; the parts that need one are handed it.
"""
