"""The command line: arguments in, results on stdout, words for people on stderr, an exit code out.

It decides nothing about decoding. Command modules (`demo`, `generate`, ...) only describe their
arguments and import the rest when they run, so that `--help` stays quick.
"""
