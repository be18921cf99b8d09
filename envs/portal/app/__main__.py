"""Starts the portal's server: `python3 -I /app SOCKET`."""

from portal.server import main  # type: ignore[import-not-found]  # this directory is the path when it is run

main()
