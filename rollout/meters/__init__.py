"""Meters: where the time, the memory and the money go, computed from the trajectory store and the run's own events."""
