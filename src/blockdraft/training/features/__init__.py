"""What the frozen target says about tokens: computed, or kept on disk."""
