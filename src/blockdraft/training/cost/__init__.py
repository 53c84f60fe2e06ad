"""What a training costs in arithmetic, memory, disk and time."""
