"""The endpoints: each takes a request apart, asks `answers`, and wraps what comes back.

No endpoint touches the engine or the tokenizer itself.
"""
