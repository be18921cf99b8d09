"""What may run at once, what waits, who goes first, and what is refused."""
