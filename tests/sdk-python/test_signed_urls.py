"""`download_url` and `upload_url`: what a signature opens, and what it does not."""

import time
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pytest
import requests

from flavours import create
from harness.server import API_KEY, wait_until


def changed(url, **values):
    parts = urlsplit(url)
    query = {key: value[0] for key, value in parse_qs(parts.query).items()}
    query = {key: value for key, value in {**query, **values}.items() if value is not None}
    return urlunsplit(parts._replace(query=urlencode(query)))


def get(url, **headers):
    return requests.get(url, headers=headers, timeout=120)


def refused(answer, message=None):
    assert answer.status_code == 401, answer.text
    assert answer.json()["code"] == 401
    if message:
        assert answer.json()["message"] == message


@pytest.mark.parametrize("options", [{}, {"use_signature_expiration": 3600}, {"user": "root"}])
def test_download(box, options):
    path = "/home/user/wörk/file name.txt"
    box.files.write(path, "signed")
    answer = get(box.download_url(path, **options))
    assert (answer.status_code, answer.text) == (200, "signed")
    assert "file" in answer.headers["content-disposition"]


@pytest.mark.parametrize("options", [{}, {"use_signature_expiration": 3600}, {"user": "root"}])
def test_upload(box, options):
    url = box.upload_url("uploads/file.txt", **options)
    answer = requests.post(url, files={"file": ("ignored.txt", b"by form")}, timeout=120)
    assert answer.status_code == 200, answer.text
    path = answer.json()[0]["path"]
    assert box.files.read(path) == "by form"
    assert box.files.get_info(path).owner == options.get("user", "user")
    answer = requests.post(url, data=b"by octets", headers={"Content-Type": "application/octet-stream"}, timeout=120)
    assert answer.status_code == 200 and box.files.read(path) == "by octets"


def test_upload_without_a_path_takes_the_names_of_the_form(box):
    files = [("file", ("/home/user/one.txt", b"1")), ("file", ("sub/two.txt", b"2"))]
    answer = requests.post(box.upload_url(""), files=files, timeout=120)
    assert answer.status_code == 200, answer.text
    assert box.files.read("/home/user/one.txt") + box.files.read("/home/user/sub/two.txt") == "12"


def test_expired(box):
    box.files.write("old", "x")
    refused(get(box.download_url("old", use_signature_expiration=-10)), "signature is already expired")
    answer = requests.post(box.upload_url("old", use_signature_expiration=-10), files={"file": b"y"}, timeout=120)
    refused(answer, "signature is already expired")
    url = box.download_url("old", use_signature_expiration=15)
    expiration = int(parse_qs(urlsplit(url).query)["signature_expiration"][0])
    assert get(url).status_code == 200
    wait_until(lambda: time.time() > expiration + 1, what="the end of the signature")
    refused(get(url), "signature is already expired")


def test_forged(box):
    box.files.write("file", "x")
    box.files.write("other", "x")
    url = box.download_url("file", use_signature_expiration=3600)
    for forged in [
        changed(url, path="other"),
        changed(url, path="/home/user/file"),
        changed(url, username="root"),
        changed(url, signature_expiration=str(int(time.time()) + 9999)),
        changed(url, signature_expiration=None),
        changed(url, signature="v1_" + "A" * 43),
        changed(url, signature=None),
        changed(url, signature=""),
    ]:
        assert get(forged, **agent_of(box)).status_code == 401, forged
    answer = requests.post(url, files={"file": b"y"}, headers=agent_of(box), timeout=120)
    assert answer.status_code == 401  # a reader may not write
    assert get(box.upload_url("file"), **agent_of(box)).status_code == 401
    assert box.files.read("file") == "x"
    assert get(changed(url, signature_expiration="soon"), **agent_of(box)).status_code in (400, 401)


def agent_of(box):
    """Headers that name the sandbox: a forged signature no longer does."""
    return {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49983"}


def test_a_wrong_token_is_not_helped_by_a_signature(box):
    box.files.write("file", "x")
    refused(get(box.download_url("file"), **agent_of(box), **{"X-Access-Token": "wrong"}))


def test_not_found(box):
    answer = get(box.download_url("no/such/file"))
    assert answer.status_code == 404
    assert answer.json() == {"code": 404, "message": "path '/home/user/no/such/file' does not exist"}


def test_another_sandbox_is_not_opened(box, flavour):
    other = create(flavour, timeout=1800)
    try:
        other.files.write("file", "secret")
        url = box.download_url("file")
        assert get(url, **agent_of(other)).status_code == 401
    finally:
        other.kill()


def test_an_unsecured_sandbox_needs_neither_token_nor_signature(server):
    """Only the older create call can ask for one; a token that is sent all the same must be right."""
    api = {"X-API-Key": API_KEY}
    made = requests.post(f"{server.url}/sandboxes", json={"templateID": "base", "timeout": 1800}, headers=api, timeout=120).json()
    try:
        agent = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983"}
        url = f"{server.url}/files?path=file"
        assert requests.post(url, files={"file": b"open"}, headers=agent, timeout=120).status_code == 200
        assert get(url, **agent).text == "open"
        listed = requests.post(f"{server.url}/process.Process/List", json={}, headers=agent, timeout=120)
        assert (listed.status_code, listed.json()) == (200, {})
        refused(get(url, **agent, **{"X-Access-Token": "wrong"}))
    finally:
        requests.delete(f"{server.url}/sandboxes/{made['sandboxID']}", headers=api, timeout=120)


def test_ranges(box):
    box.files.write("range", "0123456789")
    answer = get(box.download_url("range"), Range="bytes=2-4")
    assert (answer.status_code, answer.text, answer.headers["content-range"]) == (206, "234", "bytes 2-4/10")
    assert get(box.download_url("range"), Range="bytes=50-").status_code == 416
