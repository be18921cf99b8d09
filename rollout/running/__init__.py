"""Running one trajectory, from its session to its score."""
