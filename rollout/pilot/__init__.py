"""The capacity pilot: raise the load until one line grows; then the whole loop, one limit at a time."""
