"""What the measurements advise: arithmetic that can be checked by hand, each answer with the figures that it rests on."""
