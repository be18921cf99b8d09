"""ledgerline: small, dependable pieces for bookkeeping programs. Standard library only."""

__version__ = "1.4.0"
