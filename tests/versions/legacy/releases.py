"""Releases of the first generation, what is run with them, and the way to the server that they know: TLS on names below a domain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import tempfile
import threading
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOMAIN = "sbx.localhost"


@dataclass(frozen=True)
class Release:
    """A release of a package, and the program for it."""

    language: str
    package: str
    version: str
    program: str
    # Packages that have to be pinned as well.
    beside: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.language}-{self.package.rpartition('/')[2]}-{self.version}"


# The first and the last of each series, if its programs are the same. The Python ones are yanked, so that only an exact version installs.
RELEASES = [
    Release("python", "e2b", "0.14.14", "sandbox.py"),
    Release("python", "e2b", "0.17.1", "sandbox.py"),
    # It takes any later `e2b`, and works with none of them.
    Release("python", "e2b-code-interpreter", "0.0.10", "kernels.py", ("e2b==0.17.1",)),
    Release("js", "e2b", "0.12.0", "sandbox.mjs"),
    Release("js", "e2b", "0.16.2", "sandbox.mjs"),
    Release("js", "@e2b/code-interpreter", "0.0.2", "kernels.mjs"),
    Release("js", "@e2b/code-interpreter", "0.0.8", "kernels.mjs"),
]


def command(release: Release, place: Path, python: str, front: dict[str, str], resolved=False) -> tuple[list[str], dict[str, str]]:
    """The command that runs a release's program, and its environment. Names are led to this host inside the program, unless they are
    `resolved` anyway."""
    # What names the server to later releases is not there.
    env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    env |= {"E2B_API_KEY": os.environ["E2B_API_KEY"], **front}
    if release.language == "python":
        return [python, str(HERE / release.program)], env | {"PYTHONPATH": str(place) if resolved else f"{HERE}:{place}"}
    # Modules are looked for beside the file that imports them.
    (place / release.program).write_text((HERE / release.program).read_text())
    led = [] if resolved else ["--require", str(HERE / "names.cjs")]
    return ["node", *led, str(place / release.program)], env


@contextlib.contextmanager
def front(url: str):
    """The variables by which first-generation clients find the server at `url`: TLS ends in front of it."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "ca.pem"), Path(directory, "key.pem")
        subject = ["-subj", f"/CN={DOMAIN}", "-addext", f"subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN}"]
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*new, *subject], check=True, capture_output=True)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        server = urllib.parse.urlsplit(url)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        listening = asyncio.run_coroutine_threadsafe(listen(tls, server.hostname, server.port), loop).result()
        try:
            yield {
                "E2B_DOMAIN": f"{DOMAIN}:{listening.sockets[0].getsockname()[1]}",
                "NODE_EXTRA_CA_CERTS": str(certificate),
                "SSL_CERT_FILE": str(certificate),
                "REQUESTS_CA_BUNDLE": str(certificate),
            }
        finally:
            asyncio.run_coroutine_threadsafe(end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


async def end() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def listen(tls: ssl.SSLContext, host: str, port: int) -> asyncio.Server:
    async def serve(reader, writer):
        try:
            ahead = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        # At the end of all tests, connections may still be open.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(copy(reader, ahead[1]), copy(ahead[0], writer))

    return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    # TLS has no half-closed connections.
    writer.close()
