"""The server: an engine on its own thread behind HTTP, and what is measured about it.

It decides no token; decoding is the engine's.
"""
