"""Deliveries of webhooks to a receiver on this host, by the command line and by the dashboard, on a server that may call it."""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from dashboard import axe, chromium, needs_chromium, serious, visit  # noqa: F401
from e2b_code_interpreter import Sandbox
from playwright.sync_api import expect

from harness.command_line import sandcove
from harness.server import wait_until

SECRET = "s" * 40


@pytest.fixture(scope="module", autouse=True)
def private(server):
    """The server, started again with webhooks to private addresses."""
    before = server.variables
    server.stop()
    server.variables = {**before, "SANDCOVE_PRIVATE_WEBHOOKS": "1"}
    server.start()
    yield
    server.stop()
    server.variables = before
    server.start()


@pytest.fixture
def receiver():
    """A receiver of webhooks, with what it got, and the status with which it answers."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            service.got.append((dict(self.headers), body))
            self.send_response(service.status)
            self.end_headers()

        def log_message(self, *_):
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    service.got, service.status = [], 200
    service.url = f"http://127.0.0.1:{service.server_port}/hook"
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    yield service
    service.shutdown()
    thread.join()
    service.server_close()


@pytest.fixture
def webhook(server, receiver, tmp_path):
    """A webhook for ends of sandboxes, and its file with the secret; the test's own calls of the command print JSON."""
    (tmp_path / "secret").write_text(SECRET)
    options = ["--secret-file", str(tmp_path / "secret"), "-e", "sandbox.lifecycle.killed", "--json"]
    webhook = called(server, "create", "hook-of-tests", receiver.url, *options)
    yield webhook
    sandcove(server, "webhook", "delete", webhook["id"])


def called(server, *arguments):
    done = sandcove(server, "webhook", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_delivers_an_event_again(server, receiver, webhook):
    Sandbox.create("base", timeout=60).kill()
    deliveries = lambda: called(server, "deliveries", webhook["id"], "--json")  # noqa: E731
    wait_until(lambda: len(deliveries()) == 1, what="the delivery")
    (first,) = deliveries()
    attempt = first["attempts"][0]
    assert attempt["id"] in sandcove(server, "webhook", "deliveries", webhook["id"]).stdout
    queued = called(server, "redeliver", webhook["id"], attempt["id"], "--json")
    assert queued == first, "it has the attempts so far"
    wait_until(lambda: len(deliveries()[0]["attempts"]) == 2, what="the attempt")
    done = sandcove(server, "webhook", "redeliver", webhook["id"], first["eventId"])
    assert (done.returncode, done.stdout) == (0, "") and first["eventId"] in done.stderr
    wait_until(lambda: len(deliveries()[0]["attempts"]) == 3, what="the next attempt")
    assert [one["status"] for one in deliveries()[0]["attempts"]] == ["success"] * 3
    (headers, body), *again = receiver.got
    assert [other for _, other in again] == [body, body] and json.loads(body)["id"] == first["eventId"]
    assert len({headers["e2b-delivery-id"] for headers, _ in receiver.got}) == 3
    signature = urlsafe_b64encode(hashlib.sha256(SECRET.encode() + body).digest()).decode().rstrip("=")
    assert {headers["e2b-signature"] for headers, _ in receiver.got} == {signature}

    for delivery in (webhook["id"], "nothing"):
        done = sandcove(server, "webhook", "redeliver", webhook["id"], delivery)
        assert done.returncode == 1 and f"unknown delivery `{delivery}`" in done.stderr
        assert f"hint: `sandcove webhook deliveries {webhook['id']}`" in done.stderr
    done = sandcove(server, "webhook", "redeliver", first["eventId"], attempt["id"])
    assert done.returncode == 1 and f"unknown webhook `{first['eventId']}`" in done.stderr


def test_the_command_changes_a_webhook(server, receiver, webhook, tmp_path):
    (tmp_path / "other").write_text("other")
    update = ["update", webhook["id"], "--json"]
    assert called(server, *update, "--name", "renamed") == {**webhook, "name": "renamed"}
    events = ["sandbox.lifecycle.created", "sandbox.lifecycle.killed"]
    changed = called(server, *update, "--receiver", f"{receiver.url}/other", "-e", events[0], "-e", events[1], "--secret-file", str(tmp_path / "other"))
    assert changed == {**webhook, "name": "renamed", "url": f"{receiver.url}/other", "events": events}
    assert called(server, *update, "--disable")["enabled"] is False
    done = sandcove(server, "webhook", "redeliver", webhook["id"], webhook["id"])
    assert done.returncode == 1 and "disabled" in done.stderr
    assert called(server, "enable", webhook["id"], "--json") == changed
    assert called(server, "disable", webhook["id"], "--json")["enabled"] is False
    assert called(server, *update, "--enable") == changed
    assert sandcove(server, "webhook", "update", webhook["id"], "--name", "again").stdout == ""
    Sandbox.create("base", timeout=60).kill()
    wait_until(lambda: len(receiver.got) == 2, what="both events")
    headers, body = receiver.got[0]
    signature = urlsafe_b64encode(hashlib.sha256(b"other" + body).digest()).decode().rstrip("=")
    assert (json.loads(body)["type"], headers["e2b-signature"]) == (events[0], signature)

    for mistake, hint, status in [
        ([], "--receiver", 2),
        (["--enable", "--disable"], "--disable", 2),
        (["--receiver", "elsewhere"], "https://", 1),
        (["-e", "sandbox.lifecycle.kild"], "sandbox.lifecycle.killed", 1),
        (["--secret-file", str(tmp_path / "missing")], "missing", 1),
    ]:
        done = sandcove(server, "webhook", "update", webhook["id"], *mistake)
        assert done.returncode == status and hint in done.stderr, done.stderr
    done = sandcove(server, "webhook", "update", "nobody", "--name", "x")
    assert done.returncode == 1 and "unknown webhook `nobody`" in done.stderr


@needs_chromium
def test_the_dashboard_delivers_an_event_again(server, receiver, webhook, visit, axe):  # noqa: F811
    receiver.status = 503
    box = Sandbox.create("base", timeout=60)
    box.kill()
    wait_until(lambda: len(receiver.got) == 1, what="the delivery")
    page = visit(f"/dashboard/webhooks/{webhook['id']}")
    delivery = page.locator(".delivery").filter(has_text=box.sandbox_id)
    expect(delivery.locator("summary").first).to_contain_text("503")
    receiver.status = 200
    # The server tries again by itself too, after 10 seconds.
    with page.expect_response("**/redeliver") as answered:
        page.get_by_role("button", name=f"Send again: killed of {box.sandbox_id}").click()
    assert answered.value.status == 202
    expect(delivery.locator("summary").filter(has_text="success").first).to_be_visible()
    assert receiver.got[-1][1] == receiver.got[0][1] and json.loads(receiver.got[0][1])["sandbox_id"] == box.sandbox_id
    assert serious(page, axe) == []
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("button", name="Enable")).to_be_visible()
    expect(page.get_by_role("button", name="Send again")).to_have_count(0)
