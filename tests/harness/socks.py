"""A SOCKS5 proxy of the small internet. It wants a user name and password, and writes down whom it was asked for.

    python -m harness.socks LOG USER PASSWORD PORT TLS_PORT CERTIFICATE KEY
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import sys

from .internet import NAMES, RESOLVER


class Proxy:
    def __init__(self, log: str, user: str, password: str) -> None:
        self._log, self._user, self._password = log, user.encode(), password.encode()

    def note(self, **what: object) -> None:
        with open(self._log, "a") as log:
            log.write(json.dumps(what) + "\n")

    def destination(self, host: str, port: int) -> tuple[str | None, int]:
        """Where a host's port is; no address for a host that has none."""
        return NAMES[RESOLVER].get(host), port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        assert version == 5
        if 2 not in methods:
            self.note(refused="no user")
            writer.write(b"\5\xff")
            return
        writer.write(b"\5\2")
        _, length = await reader.readexactly(2)
        user = await reader.readexactly(length)
        [length] = await reader.readexactly(1)
        password = await reader.readexactly(length)
        if (user, password) != (self._user, self._password):
            self.note(refused="password")
            writer.write(b"\1\1")
            return
        writer.write(b"\1\0")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            [length] = await reader.readexactly(1)
            asked = (await reader.readexactly(length)).decode()
        else:
            asked = socket.inet_ntoa(await reader.readexactly(4))
        [port] = struct.unpack(">H", await reader.readexactly(2))
        address, there = self.destination(asked, port) if kind == 3 else (asked, port)
        self.note(host=asked, port=port)
        try:
            there_reader, there_writer = await asyncio.open_connection(address, there)
        except (OSError, TypeError):
            writer.write(b"\5\5\0\1\0\0\0\0\0\0")
            return
        writer.write(b"\5\0\0\1\0\0\0\0\0\0")

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while piece := await source.read(1 << 16):
                    sink.write(piece)
                    await sink.drain()
                if sink.can_write_eof():
                    sink.write_eof()
            except OSError:
                sink.close()

        try:
            await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
        finally:
            there_writer.close()


async def main(log: str, user: str, password: str, port: str, tls_port: str, certificate: str, key: str) -> None:
    proxy = Proxy(log, user, password)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    await asyncio.start_server(proxy.serve, "0.0.0.0", int(port))
    await asyncio.start_server(proxy.serve, "0.0.0.0", int(tls_port), ssl=tls)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
