"""Training a drafter: from answers of the target to a checkpoint.

The mathematics (anchors, masks, forward, loss) is pure; files, ranks and signals are at the edge.
"""
