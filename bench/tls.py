"""What the server adds in front of a service in a sandbox, plain and with TLS, beside Caddy in front of the same service on the host.

    tls.py --caddy FILE [--rounds N] [--requests N] [--connections N]
    on the server's host, with a server that has `--tls local` running, E2B_API_URL and E2B_API_KEY set, `e2b` and h2load (nghttp2-client) installed

The service is Caddy too (`caddy respond`), so that both proxies have the same program behind them. Both show a certificate of the server's own kind
(ECDSA P-256). The sides alternate, and which one begins changes with each round. Rows:

- *handshakes*: each request has a connection and a handshake of its own;
- *requests, HTTP/2*: few connections with ten requests at once on each;
- *requests, HTTP/1.1*: the same connections, one request at a time;
- *latency*: one request after the other on one connection, with the service without a proxy as a third side;
- *download*: a file of 1 GB in one answer, as a share of what the same file takes without a proxy: for the server's side from inside the sandbox's
  network, for Caddy's on the host. With TLS it is also compared with a service that speaks TLS itself, and taken at the speed of a line of
  2 Gbit/s: otherwise the processors are the limit, which client, proxy and service share.

Prints Markdown; a ratio above 1 means that the server is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from e2b import Sandbox

BODY = "x" * 1024
FILE = "large"
PORT = 8000
HOST = "bench.localhost"
H2LOAD = re.compile(r"finished in ([\d.]+)(m?s|m), ([\d.]+) req/s")


def load(url: str, address: str, requests: int, connections: int, streams: int, http1: bool = False) -> tuple[float, float]:
    """Requests each second, and the mean time of one, milliseconds."""
    command = ["h2load", "-n", str(requests), "-c", str(connections), "-m", str(streams), "--connect-to", address, *(["--h1"] if http1 else []), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert f"{requests} succeeded" in done.stdout, done.stdout + done.stderr
    rate = float(H2LOAD.search(done.stdout)[3])
    mean, unit = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)", done.stdout).groups()
    return rate, float(mean) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


@contextlib.contextmanager
def caddy(program: str, host: str, service: int, port: int, directory: Path) -> Iterator[None]:
    """The service and its files at `service` and the port after it, and Caddy in front of both: with TLS at `port`, without at the port after it."""
    config = directory / "Caddyfile"
    config.write_text(
        f"{{\n\tadmin off\n\tauto_https off\n\tservers {{\n\t\tprotocols h1 h2\n\t}}\n}}\n"
        f"(forward) {{\n\treverse_proxy /{FILE} 127.0.0.1:{service + 1}\n\treverse_proxy 127.0.0.1:{service}\n}}\n"
        f"https://{host}:{port} {{\n\ttls {directory}/cert.pem {directory}/key.pem\n\timport forward\n}}\n"
        f"http://{host}:{port + 1} {{\n\timport forward\n}}\n"
    )
    prepare(directory, host, service, str(directory))
    large(directory / FILE)
    commands = [*services(program, "127.0.0.1", service, str(directory)), [program, "run", "--adapter", "caddyfile", "--config", str(config)]]
    with contextlib.ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            stack.callback(process.terminate)
        time.sleep(3)
        yield


def services(program: str, address: str, port: int, directory: str) -> list[list[str]]:
    """The commands of the service, of the one that has the large file, at the port after it, and of the same with TLS, at the one after that."""
    return [
        [program, "respond", "--listen", f"{address}:{port}", "--body", BODY],
        [program, "file-server", "--listen", f"{address}:{port + 1}", "--root", directory],
        [program, "run", "--adapter", "caddyfile", "--config", f"{directory}/files.caddy"],
    ]


def prepare(directory: Path, host: str, service: int, place: str) -> None:
    """Writes what the services and Caddy need, but the large file, to a directory, which the services find at `place`."""
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={host}"]
    names = ["-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run([*request, *names, "-out", directory / "cert.pem", "-keyout", directory / "key.pem"], check=True, capture_output=True)
    (directory / "files.caddy").write_text(
        f"{{\n\tadmin off\n\tauto_https off\n}}\n"
        f"https://{host}:{service + 2} {{\n\ttls {place}/cert.pem {place}/key.pem\n\troot * {place}\n\tfile_server\n}}\n"
    )


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1_000_000_000)


def download(url: str, address: str, *within: str, limit: int = 0) -> float:
    """Megabytes each second, no more than `limit` if there is one, by a client that the command `within` starts."""
    command = [*within, "curl", "-sSf", "-k", "--http1.1", "--limit-rate", f"{limit * 10**6}", "--connect-to", f"::{address}", "-o", "/dev/null", "-w", "%{speed_download}", url]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caddy", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--service", type=int, default=18090)
    parser.add_argument("--port", type=int, default=18443)
    wishes = parser.parse_args()
    sandbox = Sandbox.create("base", timeout=3600)
    try:
        sandbox.files.write("/tmp/caddy", Path(wishes.caddy).read_bytes())
        sandbox.commands.run(f"chmod +x /tmp/caddy; mkdir /tmp/files; truncate -s 1000000000 /tmp/files/{FILE}")
        with tempfile.TemporaryDirectory() as directory:
            prepare(Path(directory), HOST, PORT, "/tmp/files")
            sandbox.files.write_files([{"path": f"/tmp/files/{path.name}", "data": path.read_bytes()} for path in Path(directory).iterdir()])
        for command in services("/tmp/caddy", "", PORT, "/tmp/files"):
            sandbox.commands.run(" ".join(command), background=True, timeout=0)
        time.sleep(3)
        own = f"127.0.0.1:{os.environ['E2B_API_URL'].rsplit(':', 1)[1].strip('/')}"

        def of_sandbox(scheme: str, port: int = PORT) -> tuple[str, str]:
            return f"{scheme}://{port}-{sandbox.sandbox_id}.sbx.localhost:{own.rsplit(':', 1)[1]}/", own

        with tempfile.TemporaryDirectory() as directory, caddy(wishes.caddy, HOST, wishes.service, wishes.port, Path(directory)):
            plain_port, file_port = wishes.port + 1, wishes.service + 1
            direct = f"http://127.0.0.1:{wishes.service}/", f"127.0.0.1:{wishes.service}"
            tls = {"server": of_sandbox("https"), "caddy": (f"https://{HOST}:{wishes.port}/", f"127.0.0.1:{wishes.port}"), "direct": direct}
            plain = {"server": of_sandbox("http"), "caddy": (f"http://{HOST}:{plain_port}/", f"127.0.0.1:{plain_port}"), "direct": direct}
            files, tls_files = ({**sides, "server": of_sandbox(scheme, PORT + 1)} for scheme, sides in (("http", plain), ("https", tls)))
            inside = subprocess.run(["pgrep", "-f", "^/tmp/caddy file-server"], capture_output=True, text=True, check=True).stdout.split()[0]
            in_network = ["nsenter", "--target", inside, "--net"]
            few, many = wishes.connections, wishes.requests

            def latency(side: tuple[str, str]) -> float:
                return load(*side, many // 5, 1, 1, http1=True)[1]

            def share(side: tuple[str, str], with_tls: bool = False, limit: int = 0) -> float:
                """Of what a client gets without a proxy, percent."""
                port, *within = (PORT + 1, *in_network) if "sbx" in side[0] else (wishes.service + 1,)
                scheme, port = ("https", port + 1) if with_tls else ("http", port)
                alone = download(f"{scheme}://{HOST}:{port}/{FILE}", f"127.0.0.1:{port}", *within, limit=limit)
                return 100 * download(side[0] + FILE, side[1], limit=limit) / alone

            rows = {
                "handshakes, per second": (tls, lambda side: load(*side, many // 10, many // 10, 1)[0]),
                "requests, HTTP/2, per second": (tls, lambda side: load(*side, many, few, 10)[0]),
                "requests, HTTP/1.1 with TLS, per second": (tls, lambda side: load(*side, many, few, 1, http1=True)[0]),
                "requests, HTTP/1.1 plain, per second": (plain, lambda side: load(*side, many, few, 1, http1=True)[0]),
                "latency, HTTP/1.1 with TLS, ms": (tls, latency),
                "latency, HTTP/1.1 plain, ms": (plain, latency),
                "download with TLS, percent of direct with TLS": (tls_files, lambda side: share(side, with_tls=True)),
                "download with TLS at 250 MB/s, percent of direct": (tls_files, lambda side: share(side, limit=250)),
                "download with TLS, percent of direct": (tls_files, share),
                "download plain, percent of direct": (files, share),
            }
            print("| | server | caddy | ratio | direct |\n| --- | ---: | ---: | ---: | ---: |")
            for name, (sides, measure) in rows.items():
                with_direct = name.startswith("latency")
                found: dict[str, list[float]] = {side: [] for side in sides}
                for number in range(wishes.rounds):
                    order = ["server", "caddy"] if number % 2 == 0 else ["caddy", "server"]
                    for side in [*order, *(["direct"] if with_direct else [])]:
                        found[side].append(measure(sides[side]))
                server, other = (statistics.median(found[side]) for side in ("server", "caddy"))
                ratio = other / server if name.startswith("latency") else server / other
                digits = 2 if name.startswith("latency") else 0
                alone = f"{statistics.median(found['direct']):.{digits}f}" if with_direct else ""
                print(f"| {name} | {server:.{digits}f} | {other:.{digits}f} | {ratio:.2f} | {alone} |", flush=True)
    finally:
        sandbox.kill()


if __name__ == "__main__":
    main()
