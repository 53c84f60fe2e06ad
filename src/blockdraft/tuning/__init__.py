"""What to set for a workload: predicted speed-ups, measured ones, and flags for five engines.

It prints nothing and parses no arguments.
"""
