"""Samples, anchors and packed rows: what a step learns from, drawn from the answers."""
