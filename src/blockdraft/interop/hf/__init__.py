"""The published HF folder, as engines other than this one want it.

It is our own layout without what only we read, so `checkpoint` reads it back.
"""
