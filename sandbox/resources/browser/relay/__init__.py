"""The program that runs beside Chromium inside its sandbox: starts it, shares its debugging pipe among clients, and leads the
names of sites to other resources' sockets. Python 3.9, standard library only; its modules import each other relatively."""
