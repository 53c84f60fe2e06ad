"""The speculators folder, which vLLM serves by itself: `config.py` maps its keys, `write.py` and
`read.py` its tensors.

Its layer ids are one higher than the published ones, and its embedding and head are its own.
"""
