"""Where instances run: a folder each."""
