"""The command channel: one stream to the first process of a box, and the program that runs there."""
