"""Optimizers, learning rates over time, and averages of the weights."""
