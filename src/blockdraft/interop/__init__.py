"""Drafters in the formats of other engines: read from them, written for them.

It decodes nothing and starts no engine; whether a pair will work there is `check`'s question.
"""
