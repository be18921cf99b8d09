"""Instances as groups of boxes: everything about them that does not depend on what a box is made of."""
