"""Leads connections on loopback ports to Unix sockets of other resources.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio

CHUNK = 65_536


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def lead(port: int, path: str) -> asyncio.AbstractServer:
    """Listen on the port; every connection becomes one on the socket, which need not be there yet."""

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(path)
        except OSError:
            writer.transport.abort()  # as where nobody listens
            return
        try:
            await asyncio.wait(
                {
                    asyncio.ensure_future(_copy(reader, inner_writer)),
                    asyncio.ensure_future(_copy(inner_reader, writer)),
                }
            )
        finally:
            inner_writer.close()
            writer.close()

    return await asyncio.start_server(met, "127.0.0.1", port)
