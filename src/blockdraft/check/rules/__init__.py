"""The rules, one module for each engine and four for what holds everywhere.

A rule is a pure function of `PairFacts`; `catalog.py` has all of them in one table.
"""
