"""A run in its folder: the loop, its state on disk, evaluations, reports and the export."""
