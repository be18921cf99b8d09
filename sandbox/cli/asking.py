"""Asking the person at the terminal, where there is one."""

from __future__ import annotations

import asyncio
import os
import sys
import termios

ANSWER_LIMIT_S = 600.0


def somebody_is_there() -> bool:
    """True where a question would be read and could be answered."""
    return sys.stdin is not None and sys.stdin.isatty()


async def agreed(question: str, *, limit_s: float = ANSWER_LIMIT_S) -> bool:
    """Ask on stderr; True for `y` or `yes`, False for anything else, the end of input, and no answer within the limit.

    At a terminal only what is typed after the question is an answer to it.
    """
    loop, source = asyncio.get_running_loop(), sys.stdin.fileno()
    answer: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        loop.remove_reader(source)
        answer.set_result(os.read(source, 4096))

    if os.isatty(source):
        termios.tcflush(source, termios.TCIFLUSH)
    print(question, end=" ", file=sys.stderr, flush=True)
    loop.add_reader(source, read)
    try:
        async with asyncio.timeout(limit_s):
            return (await answer).decode(errors="replace").strip().lower() in ("y", "yes")
    except TimeoutError:
        print(f"no answer within {limit_s:g} s", file=sys.stderr)
        return False
    finally:
        loop.remove_reader(source)
