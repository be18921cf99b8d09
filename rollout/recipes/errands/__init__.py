"""The recipe's environment: three lists in a directory, and tasks that add a line to one of them."""
