"""The training side: attaches the pool to a rollout loop. Nothing is built here yet."""
