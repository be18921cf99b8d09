"""`autoclave`: the commands by name, each loaded only when it is called."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

INTERRUPTED = 130
COMMANDS = {
    "doctor": "sandbox.cli.doctor:doctor",
    "pool": "sandbox.cli.pool:app",
    "session": "sandbox.cli.session:session",
    "audit": "sandbox.cli.audit:audit",
    "why": "sandbox.cli.records:why",
    "quarantine": "sandbox.cli.records:quarantine",
    "recall": "sandbox.cli.records:recall",
    "gc": "sandbox.cli.gc:gc",
}


def build() -> App:
    """Join our own commands with those of other packages (entry points `autoclave.commands`)."""
    from cyclopts import App

    app = App(
        name="autoclave",
        help=(
            "Keeps the environments that LLM agents act in, resets them between trajectories, and proves by probes that each "
            "reset worked.\n\nStart with `autoclave demo`, then `autoclave doctor` and `autoclave env new NAME`.\n\n"
            "Exit codes: 0 ok, 1 finding, 2 usage, 3 the machine lacks something, 4 internal fault."
        ),
        version=lambda: version("autoclave"),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for name, path in COMMANDS.items():
        app.command(path, name=name)
    for point in sorted(entry_points(group="autoclave.commands"), key=lambda p: p.name):
        if point.name not in COMMANDS:
            app.command(point.value, name=point.name)
    return app


def main() -> None:
    """Run the command line and exit with its code."""
    level = os.environ.get("AUTOCLAVE_LOG", "error").upper()
    logging.basicConfig(level=getattr(logging, level, logging.ERROR), format="%(levelname)s %(name)s: %(message)s")
    argv = sys.argv[1:]
    try:  # what takes time is loaded in here, so that Ctrl-C meanwhile is answered as it is later
        from sandbox.cli.running import guarded

        app = build()
        app.register_install_completion_command(name="--install-completion")
        code = guarded(lambda: app(argv), argv)
    except KeyboardInterrupt:
        message = "interrupted before anything was started"
        if "--json" in argv:
            print(json.dumps({"error": {"type": "Interrupted", "message": message, "fix": ""}}))
        else:
            print(f"error: {message}", file=sys.stderr)
        code = INTERRUPTED
    if code == INTERRUPTED:  # all is closed and said; a further signal would find the interpreter without its handlers, and kill it
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
