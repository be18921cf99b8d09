"""Looking at fresh instances and proposing what an author would otherwise find out one false alarm at a time."""
