"""Runs a command's coroutine so that Ctrl-C and SIGTERM clean up, and turns errors into exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from sandbox.cli import output
from sandbox.errors import AutoclaveError

T = TypeVar("T")
INTERRUPTED = 130
USAGE = 2
FAULT = 4


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C and SIGTERM cancel, so that every `async with` closes what it holds.

    A second signal does not cut the closing short, as asyncio's own handler would; a third one ends the process at once.
    """
    asked = 0
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupted = False

    async def main() -> T:
        task = asyncio.current_task()

        def stop() -> None:
            nonlocal asked
            asked += 1
            if asked == 1 and task is not None:
                task.cancel()
            elif asked == 2:
                output.warn("still stopping what this command started; once more ends it at once, and the next command cleans up")
            elif asked > 2:
                os._exit(INTERRUPTED)  # sandboxes die with their manager

        loop = asyncio.get_running_loop()
        for number in before:
            loop.add_signal_handler(number, stop)
        try:
            return await work
        finally:  # the loop would take its handlers away only after it has closed what they write to
            for number in before:
                loop.remove_signal_handler(number)
                signal.signal(number, lambda *_: stop())

    try:
        with asyncio.Runner() as runner:
            return runner.run(main())
    except asyncio.CancelledError:
        interrupted = True
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            if not interrupted:  # else all that is left is to say so, which no further signal cuts short
                signal.signal(number, handler or signal.SIG_DFL)  # None: what installed it is not Python


def guarded(call: Callable[[], int | None], argv: Sequence[str]) -> int:
    """Call a command and return its exit code; the one place where any exception is caught and worded."""
    from cyclopts import CycloptsError

    options = argv[: argv.index("--")] if "--" in argv else argv  # what follows belongs to the session's own command
    as_json = "--json" in options
    try:
        code = _unwrapped(call)
    except CycloptsError as error:
        output.fail(str(error), fix="see `autoclave --help`", kind="Usage", as_json=as_json)
        return USAGE
    except AutoclaveError as error:
        message = str(error).removesuffix(f". {error.fix}") if error.fix else str(error)
        output.fail(message, fix=error.fix, kind=type(error).__name__, as_json=as_json)
        return error.exit_code
    except KeyboardInterrupt:
        output.fail("interrupted; everything that this command started was stopped", kind="Interrupted", as_json=as_json)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        logging.getLogger("autoclave.cli").debug("internal fault", exc_info=True)
        output.fail(
            f"internal fault: {type(error).__name__}: {error}",
            fix="run again with AUTOCLAVE_LOG=debug and report it with the text on stderr",
            kind="InternalFault",
            as_json=as_json,
        )
        return FAULT
    return code or 0


def _unwrapped(call: Callable[[], int | None]) -> int | None:
    """A task group wraps what failed inside it; a person wants the first thing that failed."""
    try:
        return call()
    except BaseExceptionGroup as group:
        inner: BaseException = group
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        raise inner from group
