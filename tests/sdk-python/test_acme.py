"""A server whose certificate an authority issues, which checks the domain by DNS that the server itself answers."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time

import pytest
from harness import acme
from harness.server import free_port, wait_until

DOMAIN = "sandboxes.example.com"
CHALLENGE = f"_acme-challenge.{DOMAIN}"
# One for documentation. Nothing is sent there.
PUBLIC = "198.51.100.7"
# Of the process that clients talk to.
ACCOUNT = 60888
# In the order in which an order passes them.
POINTS = ["acme.account", "acme.ordered", "acme.announced", "acme.proven", "acme.finalized", "acme.kept"]


class Issued:
    """The server, the authority, and the DNS between them."""

    def __init__(self, server, directory) -> None:
        self.server = server
        self.dns_address = ("127.0.0.1", free_port())
        self.dns = acme.Dns(("127.0.0.1", 0), self.dns_address)
        self.authority = acme.Authority(directory, self.dns.address)
        self.files = server.data_dir / "server/acme"
        self.variables = {
            "SANDCOVE_TLS": "acme",
            "SANDCOVE_DOMAIN": DOMAIN,
            "SANDCOVE_PUBLIC_ADDRESS": PUBLIC,
            "SANDCOVE_DNS_LISTEN": "{}:{}".format(*self.dns_address),
            "SANDCOVE_ACME_DIRECTORY": self.authority.url,
            "SANDCOVE_ACME_CA": str(self.authority.ca),
        }

    def forget(self) -> None:
        """Has the server begin again, as on a new machine."""
        shutil.rmtree(self.files, ignore_errors=True)

    def shown(self) -> str | None:
        """The certificate that clients of the server are shown."""
        try:
            return ssl.get_server_certificate(("127.0.0.1", self.server.port), timeout=120)
        except ssl.SSLError:
            return None

    def wait_for_certificate(self, other_than: str | None = None) -> str:
        wait_until(lambda: self.shown() not in (None, other_than), what="a certificate is shown")
        return self.shown()

    def logged(self, text: str) -> int:
        return self.server.log.read_text(errors="replace").count(text)


@pytest.fixture(scope="module")
def issued(server, tmp_path_factory):
    if not shutil.which("apt-get"):
        pytest.skip("the authority for tests is a package of Debian")
    both = Issued(server, tmp_path_factory.mktemp("acme"))
    server.stop()
    before, server.variables = server.variables, {**server.variables, **both.variables}
    yield both
    server.stop()
    both.authority.stop()
    both.dns.close()
    both.forget()
    server.variables = before
    server.start()


@pytest.fixture
def fresh(issued):
    """Both stopped, without a certificate."""
    issued.server.stop()
    issued.authority.stop()
    issued.forget()
    issued.dns.zones = [CHALLENGE]
    issued.server.variables["SANDCOVE_SERVER_ACCOUNT"] = str(ACCOUNT)
    return issued


@contextlib.contextmanager
def connection(port, trusting):
    """A connection of a client that knows the server by its name only."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as client:
        client.connect()
        client.sock = trusting.wrap_socket(client.sock, server_hostname=f"api.{DOMAIN}")
        yield client


@pytest.mark.parametrize("account", [ACCOUNT, 0], ids=["two processes", "one process"])
def test_a_wildcard_is_issued_and_renewed_and_no_connection_notices(fresh, account):
    server, authority = fresh.server, fresh.authority
    server.variables["SANDCOVE_SERVER_ACCOUNT"] = str(account)
    authority.start(lifetime_s=45)
    server.start()
    first = fresh.wait_for_certificate()
    with connection(server.port, ssl.create_default_context(cadata=authority.root())) as client:
        own_end = client.sock
        names = dict.fromkeys(name for _, name in own_end.getpeercert()["subjectAltName"])
        assert set(names) == {DOMAIN, f"*.{DOMAIN}"}

        def answers():
            client.request("GET", "/health")
            answer = client.getresponse()
            return (answer.status, answer.read())

        assert answers() == (200, b"Health check successful")
        fresh.wait_for_certificate(other_than=first)
        assert answers()[0] == 200 and client.sock is own_end
    modes = {file.name: (file.stat().st_mode & 0o777, file.stat().st_uid) for file in fresh.files.iterdir() if file.suffix != ".new"}
    assert modes.pop("account.json") == modes.pop("certificate.pem") == (0o600, account), modes
    assert set(modes.values()) <= {(0o600, account)}
    assert f"{CHALLENGE}. NS ns.{DOMAIN}." in server.log.read_text(errors="replace")


def test_a_domain_that_leads_elsewhere_is_said_with_the_record_to_add(fresh):
    fresh.dns.zones = []
    fresh.authority.start()
    before = fresh.logged("could not check")
    fresh.server.start()
    wait_until(lambda: fresh.logged("could not check") > before, what="a report of the missing record")
    report = [line for line in fresh.server.tail().splitlines() if "could not check" in line][-1]
    assert DOMAIN in report and f"{CHALLENGE}. NS ns.{DOMAIN}." in report and "the next attempt is after" in report
    assert fresh.shown() is None and fresh.authority.orders == 1
    # With the record, and a start.
    fresh.dns.zones = [CHALLENGE]
    fresh.server.stop()
    fresh.server.start()
    fresh.wait_for_certificate()
    assert fresh.authority.orders == 2


def test_an_authority_that_is_down_costs_nothing_but_time(fresh):
    fresh.authority.start(lifetime_s=20)
    fresh.server.start()
    first = fresh.wait_for_certificate()
    fresh.authority.stop()
    before = fresh.logged("does not answer as it should")
    wait_until(lambda: fresh.logged("does not answer as it should") > before, what="a report that the authority is down")
    assert fresh.shown() == first
    issued_at = (fresh.files / "certificate.pem").stat().st_mtime
    wait_until(lambda: time.time() > issued_at + 25, what="the end of the certificate")
    # A start with a certificate that has expired.
    fresh.server.kill9()
    fresh.server.start()
    assert fresh.shown() == first
    fresh.authority.start()
    fresh.wait_for_certificate(other_than=first)
    assert fresh.authority.orders == 1


def test_a_server_that_dies_at_any_step_orders_once(fresh, tmp_path):
    point = tmp_path / "point"
    fresh.server.variables["SANDCOVE_CRASH_FILE"] = str(point)
    try:
        for name in POINTS:
            fresh.authority.start()
            point.write_text(name)
            # It may die before it answers.
            with contextlib.suppress(RuntimeError):
                fresh.server.start()
            assert fresh.server.process.wait(timeout=300) != 0, name
            point.write_text("")
            account = (fresh.files / "account.json").read_bytes()
            fresh.server.start()
            fresh.wait_for_certificate()
            # Checks that come while the server is away fail, and take another order.
            assert fresh.authority.orders in ([1, 2] if name == "acme.announced" else [1]), name
            assert (fresh.files / "account.json").read_bytes() == account, name
            fresh.server.stop()
            fresh.authority.stop()
            fresh.forget()
    finally:
        del fresh.server.variables["SANDCOVE_CRASH_FILE"]


def test_dns_is_answered_for_the_domain_alone(fresh):
    fresh.authority.start()
    fresh.server.start()
    for over_tcp in [False, True]:

        def ask(name, kind=acme.A, over_tcp=over_tcp):
            message = acme.question(name, kind)
            answer = acme.ask(fresh.dns_address, message, over_tcp)
            return answer[3] & 15, answer[7], answer, len(message)

        code, count, answer, _ = ask(f"8000-iabc.{DOMAIN}")
        assert (code, count) == (0, 1) and answer.endswith(socket.inet_aton(PUBLIC))
        code, count, answer, asked = ask("example.org")
        assert (code, count) == (5, 0) and len(answer) == asked
    # A flood from one network gets few answers. All that it sends is on the way when it looks for the first one.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(fresh.dns_address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        client.settimeout(120)
        sent, answered, number = 2000, 0, 0
        for number in range(sent):
            client.send(acme.question(f"n.{DOMAIN}", acme.A, number))
        # The last answers come over TCP, where nobody is turned away: the flood has been read by then, or dropped by the kernel.
        assert acme.ask(fresh.dns_address, acme.question(f"n.{DOMAIN}", acme.A), over_tcp=True)[7] == 1
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                answered += client.recv(512)[7]
    assert 1 <= answered < sent / 2, answered


def test_a_record_that_stays_is_enough(fresh, tmp_path):
    """`dns-persist-01`: the server answers no DNS, and the operator adds a record once, which the log names."""
    server, authority = fresh.server, acme.PersistentAuthority(tmp_path)
    others = {name: server.variables.pop(name) for name in ("SANDCOVE_PUBLIC_ADDRESS", "SANDCOVE_DNS_LISTEN")}
    changed = {"SANDCOVE_ACME_CHECK": "dns-persist", "SANDCOVE_ACME_DIRECTORY": authority.url, "SANDCOVE_ACME_CA": str(authority.ca)}
    before = {name: server.variables.get(name) for name in changed}
    server.variables |= changed
    record = f'_validation-persist.{DOMAIN}. TXT "{authority.IDENTITY}; accounturi={authority.account}; policy=wildcard"'
    try:
        server.start()
        wait_until(lambda: fresh.logged(f"the DNS needs the record `{record}`") > 0, deadline_s=60, what="the log names the record")
        assert fresh.shown() is None and len(authority.orders) == 1
        # The operator adds it, and a start tries at once.
        name, value = record.split(" TXT ")
        authority.records[name] = value.strip('"')
        server.stop()
        server.start()
        first = fresh.wait_for_certificate()
        with connection(server.port, ssl.create_default_context(cafile=authority.root)) as client:
            assert set(dict.fromkeys(name for _, name in client.sock.getpeercert()["subjectAltName"])) == {DOMAIN, f"*.{DOMAIN}"}
        # The next one needs no hand.
        (fresh.files / "certificate.pem").unlink()
        server.stop()
        server.start()
        fresh.wait_for_certificate(other_than=first)
        with pytest.raises(ConnectionRefusedError):
            acme.ask(fresh.dns_address, acme.question(DOMAIN, acme.A), over_tcp=True)
    finally:
        server.stop()
        authority.close()
        server.variables |= others
        for name, value in before.items():
            server.variables.pop(name)
            server.variables |= {name: value} if value else {}


def test_doctor_says_whether_questions_come_here(fresh, tmp_path):
    fresh.authority.start()
    fresh.server.start()
    fresh.wait_for_certificate()
    # The host's name server has to be at port 53. Every process has a loopback address of its own for it.
    host = socket.inet_ntoa(struct.pack(">I", 0x7F000000 | 0x010000 | (os.getpid() & 0x3FFFFF) << 1 & 0xFFFFFF | 2))
    dns = acme.Dns((host, 53), fresh.dns_address)
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(f"nameserver {host}\n")
    script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    command = [fresh.server.binary, "doctor", "--json", "--data-dir", fresh.server.data_dir]

    def delegation():
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, resolver, *command], capture_output=True, text=True, timeout=300)
        return next(check for check in json.loads(done.stdout) if check["name"] == "delegation")

    try:
        missing = delegation()
        assert missing["status"] == "warn" and f"{CHALLENGE}. NS ns.{DOMAIN}." in str(missing), missing
        dns.zones = [CHALLENGE]
        assert delegation()["status"] == "ok"
    finally:
        dns.close()
