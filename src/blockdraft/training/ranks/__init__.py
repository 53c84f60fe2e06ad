"""Several processes as one: their talk, replicas and shards."""
