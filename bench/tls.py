"""TLS and HTTP/2 in front of a service in a sandbox, beside Caddy in front of the same service on the host.

    tls.py --caddy FILE [--rounds N] [--requests N] [--connections N]
    on the server's host, with a server that has `--tls local` running, E2B_API_URL and E2B_API_KEY set, `e2b` and h2load (nghttp2-client) installed

The service is Caddy too (`caddy respond`), so that both proxies have the same program behind them. Both show a certificate of the server's own kind
(ECDSA P-256). The sides alternate, and which one begins changes with each round. Rows:

- *handshakes*: each request has a connection and a handshake of its own;
- *requests, HTTP/2*: few connections with ten requests at once on each;
- *requests, HTTP/1.1*: the same connections, one request at a time;
- *latency*: one request after the other on one connection, with the service without a proxy as a third side.

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
PORT = 8000
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
    """Caddy in front of the service at `service`."""
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={host}"]
    names = ["-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run([*request, *names, "-out", directory / "cert.pem", "-keyout", directory / "key.pem"], check=True, capture_output=True)
    config = directory / "Caddyfile"
    config.write_text(
        f"{{\n\tadmin off\n\tauto_https off\n\tservers {{\n\t\tprotocols h1 h2\n\t}}\n}}\n"
        f"https://{host}:{port} {{\n\ttls {directory}/cert.pem {directory}/key.pem\n\treverse_proxy 127.0.0.1:{service}\n}}\n"
    )
    respond = [program, "respond", "--listen", f"127.0.0.1:{service}", "--body", BODY]
    run = [program, "run", "--adapter", "caddyfile", "--config", str(config)]
    with subprocess.Popen(respond, stderr=subprocess.DEVNULL) as origin, subprocess.Popen(run, stderr=subprocess.DEVNULL) as proxy:
        try:
            time.sleep(3)
            yield
        finally:
            proxy.terminate()
            origin.terminate()


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
        sandbox.commands.run("chmod +x /tmp/caddy")
        sandbox.commands.run(f"/tmp/caddy respond --listen :{PORT} --body {BODY}", background=True, timeout=0)
        time.sleep(3)
        own = f"127.0.0.1:{os.environ['E2B_API_URL'].rsplit(':', 1)[1].strip('/')}"
        name = f"{PORT}-{sandbox.sandbox_id}.sbx.localhost"
        with tempfile.TemporaryDirectory() as directory, caddy(wishes.caddy, "bench.localhost", wishes.service, wishes.port, Path(directory)):
            sides = {
                "server": (f"https://{name}:{own.rsplit(':', 1)[1]}/", own),
                "caddy": (f"https://bench.localhost:{wishes.port}/", f"127.0.0.1:{wishes.port}"),
                "direct": (f"http://127.0.0.1:{wishes.service}/", f"127.0.0.1:{wishes.service}"),
            }
            few, many = wishes.connections, wishes.requests
            rows = {
                "handshakes, per second": lambda side: load(*sides[side], many // 10, many // 10, 1)[0],
                "requests, HTTP/2, per second": lambda side: load(*sides[side], many, few, 10)[0],
                "requests, HTTP/1.1, per second": lambda side: load(*sides[side], many, few, 1, http1=True)[0],
                "latency, HTTP/1.1, ms": lambda side: load(*sides[side], many // 5, 1, 1, http1=True)[1],
            }
            print("| | server | caddy | ratio | direct |\n| --- | ---: | ---: | ---: | ---: |")
            for name, measure in rows.items():
                is_time = name.startswith("latency")
                found: dict[str, list[float]] = {side: [] for side in sides}
                for number in range(wishes.rounds):
                    order = ["server", "caddy"] if number % 2 == 0 else ["caddy", "server"]
                    for side in [*order, *(["direct"] if is_time else [])]:
                        found[side].append(measure(side))
                server, other = (statistics.median(found[side]) for side in ("server", "caddy"))
                ratio = other / server if is_time else server / other
                direct = f"{statistics.median(found['direct']):.2f}" if is_time else ""
                digits = 2 if is_time else 0
                print(f"| {name} | {server:.{digits}f} | {other:.{digits}f} | {ratio:.2f} | {direct} |", flush=True)
    finally:
        sandbox.kill()


if __name__ == "__main__":
    main()
