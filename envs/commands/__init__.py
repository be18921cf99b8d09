"""`autoclave env list | show | add | remove | new | check | baseline`."""

from cyclopts import App

from envs.commands.checking import check
from envs.commands.recording import baseline
from envs.commands.registered import add, list_, remove, show
from envs.commands.writing import new

__all__ = ["app"]
app = App(name="env", help="Environments: write one, register it, and verify that its reset works.")
app.command(list_, name="list")
for command in (show, add, remove, new, check, baseline):
    app.command(command)
