"""Targets over HTTP: credentials, certificates, signatures, sessions, files. Each test is about the real promptfoo too (PROMPTFOO_ENTRYPOINT)."""

import base64
import email
import json
import ssl
import subprocess
import time

import pytest

from targets import certificates, openssl, programs, run, target
from verdicts import free_port


@pytest.fixture
def service():
    with target() as server:
        yield server


def http(service, **config):
    return {"providers": [{"id": "http", "config": {
        "url": f"{service.url}/target", "method": "POST", "headers": {"Content-Type": "application/json"}, "body": {"text": "{{prompt}}"},
        "transformResponse": "json", **config,
    }}]}


def outputs(rows):
    return [row["response"]["output"] for row in rows]


TWO = {"tests": [{"vars": {"x": "a"}}, {"vars": {"x": "b"}}]}


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        ({"type": "bearer", "token": "t-{{x}}"}, "authorization", "Bearer t-hi"),
        ({"type": "basic", "username": "{{x}}", "password": "p"}, "authorization", f"Basic {base64.b64encode(b'hi:p').decode()}"),
        ({"type": "api_key", "keyName": "X-Key", "value": "{{x}}", "placement": "header"}, "x-key", "hi"),
    ],
)
def test_credentials_are_templates(sandcove, service, tmp_path, auth, name, value):
    for program in programs(sandcove):
        _, rows, said = run(program, tmp_path, http(service, auth=auth))
        assert outputs(rows)[0]["headers"][name] == value, said


def test_a_key_may_be_in_the_address(sandcove, service, tmp_path):
    auth = {"type": "api_key", "keyName": "key", "value": "{{x}} &", "placement": "query"}
    for program in programs(sandcove):
        _, rows, _ = run(program, tmp_path, http(service, auth=auth))
        assert outputs(rows)[0]["path"] in ("/target?key=hi+%26", "/target?key=hi%20%26")


@pytest.mark.parametrize(
    ("grant", "form"),
    [
        ({"grantType": "client_credentials", "clientId": "me", "clientSecret": "s&", "scopes": ["a", "b"]},
         "grant_type=client_credentials&client_id=me&client_secret=s%26&scope=a+b"),
        ({"grantType": "password", "username": "u", "password": "{{env.WORD}}"}, "grant_type=password&username=u&password=word"),
    ],
)
def test_tokens_are_asked_for_once(sandcove, service, tmp_path, grant, form):
    auth = {"type": "oauth", "tokenUrl": f"{service.url}/token/3600", **grant}
    for program in programs(sandcove):
        service.asked.clear()
        suite = http(service, auth=auth, headers={"Content-Type": "application/json", "X-Token": "{{token}}"})
        _, rows, said = run(program, tmp_path, {**suite, **TWO}, WORD="word")
        asked = [(path, body) for _, path, _, body in service.asked if path.startswith("/token")]
        assert asked == [("/token/3600", form)], said
        for output in outputs(rows):
            assert (output["headers"]["authorization"], output["headers"]["x-token"]) == ("Bearer token 1", "token 1")


def test_tokens_that_end_are_asked_for_again(sandcove, service, tmp_path):
    auth = {"type": "oauth", "grantType": "client_credentials", "clientId": "a", "clientSecret": "b", "tokenUrl": f"{service.url}/token/30"}
    for program in programs(sandcove):
        service.asked.clear()
        _, rows, _ = run(program, tmp_path, {**http(service, auth=auth), **TWO})
        assert len([path for _, path, *_ in service.asked if path == "/token/30"]) == 2
        assert {output["headers"]["authorization"] for output in outputs(rows)} == {"Bearer token 1", "Bearer token 2"}


def test_a_refused_token_is_an_error_of_the_row(sandcove, service, tmp_path):
    auth = {"type": "oauth", "grantType": "client_credentials", "clientId": "a", "clientSecret": "b", "tokenUrl": f"{service.url}/no-token"}
    for program in programs(sandcove):
        _, [row], _ = run(program, tmp_path, http(service, auth=auth))
        assert row["failureReason"] == 2 and "invalid_client" in row["error"] and "401" in row["error"]


@pytest.mark.parametrize("path", ["file://auth.py", "file://auth.py:other", "file://auth.cjs"])
def test_tokens_come_from_a_file(sandcove, service, tmp_path, path):
    (tmp_path / "auth.py").write_text(
        "def get_auth(context):\n    return {'token': 'for ' + context['vars']['x'], 'expiration': None}\n"
        "def other(context):\n    return {'token': 'for ' + context['vars']['x']}\n"
    )
    (tmp_path / "auth.cjs").write_text("module.exports = async (context) => ({ token: 'for ' + context.vars.x })\n")
    headers = {"Content-Type": "application/json", "Authorization": "Own {{token}}"}
    for program in programs(sandcove):
        _, rows, said = run(program, tmp_path, http(service, auth={"type": "file", "path": path}, headers=headers))
        assert outputs(rows)[0]["headers"]["authorization"] == "Own for hi", said


@pytest.mark.parametrize("settings", [
    {"caPath": "ca.pem"},
    {"ca": "INLINE"},
    {"rejectUnauthorized": False},
])
def test_authorities_are_the_users(sandcove, tmp_path, settings):
    context = certificates(tmp_path)
    if "ca" in settings:
        settings = {"ca": (tmp_path / "ca.pem").read_text()}
    with target(context) as service:
        for program in programs(sandcove):
            _, rows, said = run(program, tmp_path, http(service, tls=settings))
            assert outputs(rows)[0]["method"] == "POST", said
            _, [row], _ = run(program, tmp_path, http(service, maxRetries=0))
            assert row["failureReason"] == 2, "an unknown authority was trusted"


@pytest.mark.parametrize("inline", [False, True])
def test_clients_show_their_certificate(sandcove, tmp_path, inline):
    context = certificates(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tmp_path / "ca.pem")
    settings = {"caPath": "ca.pem", "certPath": "client.pem", "keyPath": "client.key"}
    if inline:
        settings = {"ca": [(tmp_path / "ca.pem").read_text()], "cert": (tmp_path / "client.pem").read_text(), "key": (tmp_path / "client.key").read_text()}
    with target(context) as service:
        token = {"type": "oauth", "grantType": "client_credentials", "clientId": "a", "clientSecret": "b", "tokenUrl": f"{service.url}/token/60"}
        session = {"url": f"{service.url}/session", "responseParser": "data.body.id"}
        for program in programs(sandcove):
            _, rows, said = run(program, tmp_path, http(service, tls=settings, auth=token, session=session))
            assert outputs(rows)[0]["method"] == "POST", said
            _, [row], _ = run(program, tmp_path, http(service, tls={"caPath": "ca.pem"}, maxRetries=0))
            assert row["failureReason"] == 2, "a client without a certificate was let in"


@pytest.mark.parametrize(
    ("key", "settings", "digest"),
    [
        (["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], {"type": "pem", "privateKeyPath": "key.pem"}, "sha256"),
        (["genrsa", "-traditional", "-out", "key.pem", "2048"], {"privateKey": "INLINE", "signatureAlgorithm": "RSA-SHA512"}, "sha512"),
        (["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], {"privateKeyPath": "file://key.pem"}, "sha256"),
        (["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], {"type": "pfx", "certPath": "key.pem", "keyPath": "key.pem"}, "sha256"),
    ],
)
def test_requests_are_signed(sandcove, service, tmp_path, key, settings, digest):
    openssl(*key, *([] if "-out" in key else ["-out", "key.pem"]), directory=tmp_path)
    openssl("pkey", "-in", "key.pem", "-pubout", "-out", "public.pem", directory=tmp_path)
    if "privateKey" in settings:
        settings = {**settings, "privateKey": (tmp_path / "key.pem").read_text()}
    settings = {**settings, "signatureDataTemplate": "me\\n{{signatureTimestamp}}"}
    headers = {"Content-Type": "application/json", "X-Signature": "{{signature}}", "X-Time": "{{signatureTimestamp}}"}
    for program in programs(sandcove):
        if settings.get("privateKeyPath", "").startswith("file://") and program != sandcove:
            continue  # promptfoo takes no `file://` there
        _, rows, said = run(program, tmp_path, {**http(service, signatureAuth=settings, headers=headers), **TWO})
        first, second = (output["headers"] for output in outputs(rows))
        assert first["x-signature"] == second["x-signature"], "a signature is used for minutes"
        assert abs(int(first["x-time"]) / 1000 - time.time()) < 60, said
        (tmp_path / "data").write_text(f"me\n{first['x-time']}")
        (tmp_path / "signature").write_bytes(base64.b64decode(first["x-signature"]))
        openssl("dgst", f"-{digest}", "-verify", "public.pem", "-signature", "signature", "data", directory=tmp_path)


def test_signatures_are_renewed(sandcove, service, tmp_path):
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "key.pem", directory=tmp_path)
    settings = {"privateKeyPath": "key.pem", "signatureValidityMs": 1000, "signatureRefreshBufferMs": 1000}
    headers = {"Content-Type": "application/json", "X-Time": "{{signatureTimestamp}}"}
    suite = {**http(service, signatureAuth=settings, headers=headers), **TWO}
    suite["providers"][0]["delay"] = 50
    for program in programs(sandcove):
        _, rows, said = run(program, tmp_path, {**suite, "evaluateOptions": {"maxConcurrency": 1}})
        assert len({output["headers"]["x-time"] for output in outputs(rows)}) == 2, said


def test_each_row_begins_a_session(sandcove, service, tmp_path):
    session = {"url": f"{service.url}/session", "headers": {"X-Of": "{{x}}"}, "body": {"of": "{{x}}"}, "responseParser": "data.body.id"}
    suite = {**http(service, session=session, body={"id": "{{sessionId}}"}), **TWO}
    for program in programs(sandcove):
        service.asked.clear()
        _, rows, said = run(program, tmp_path, suite)
        begun = sorted((headers["x-of"], json.loads(body)) for _, path, headers, body in service.asked if path == "/session")
        assert begun == [("a", {"of": "a"}), ("b", {"of": "b"})], said
        assert sorted(json.loads(output["body"])["id"] for output in outputs(rows)) == ["s1", "s2"]
        assert sorted(row["response"]["sessionId"] for row in rows) == ["s1", "s2"]
        assert all(row["response"]["sessionId"] == row["metadata"]["sessionId"] for row in rows)


def test_a_session_lasts_for_a_conversation(sandcove, service, tmp_path):
    session = {"url": f"{service.url}/session", "method": "GET", "responseParser": "(data) => data.body.id"}
    provider = http(service, session=session, body={"id": "{{sessionId}}", "text": "{{prompt}}"}, transformResponse="json.body")
    talk = {"id": "sequence", "config": {"inputs": ["one", "two"]}}
    _, rows, said = run(sandcove, tmp_path, {**provider, "tests": [{"vars": {"x": "hi"}, "provider": talk}]})
    bodies = [json.loads(body) for _, path, _, body in service.asked if path == "/target"]
    assert bodies == [{"id": "s1", "text": "one"}, {"id": "s1", "text": "two"}], said


def test_a_service_that_begins_no_session_is_an_error(sandcove, service, tmp_path):
    session = {"url": f"{service.url}/session", "responseParser": "data.body.none"}
    for program in programs(sandcove):
        _, [row], _ = run(program, tmp_path, http(service, session=session))
        assert row["failureReason"] == 2 and "session" in row["error"].lower()


def parts_of(output):
    """The parts of a body, by name: their head and their bytes."""
    head = f"Content-Type: {output['headers']['content-type']}\r\n\r\n"
    message = email.message_from_bytes(head.encode() + output["body"].encode("latin1"))
    return {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}


def test_files_and_fields_are_sent(sandcove, service, tmp_path):
    (tmp_path / "photo.png").write_bytes(bytes(range(256)))
    (tmp_path / "notes.txt").write_text("notes of {{x}}")
    form = {"parts": [
        {"kind": "field", "name": "question", "value": "{{prompt}}\nplease"},
        {"kind": "field", "name": "of {{x}}", "value": 7},
        {"kind": "file", "name": "photo", "source": {"type": "path", "path": "photo.png"}},
        {"kind": "file", "name": "notes", "filename": "{{x}} \"1\".md", "contentType": "text/markdown", "source": {"type": "path", "path": "file://notes.txt"}},
        {"kind": "file", "name": "made", "source": {"type": "generated", "text": "about {{prompt}}"}},
        {"kind": "file", "name": "image", "source": {"type": "generated", "format": "png"}, "filenameTemplate": "{{x}}.png"},
    ]}
    config = {"url": f"{service.url}/target", "multipart": form, "transformRequest": "prompt.toUpperCase()", "transformResponse": "json",
              "headers": {"Content-Type": "text/plain", "X-Own": "{{x}}"}}
    for program in programs(sandcove):
        if program != sandcove:
            form["parts"][3]["source"]["path"] = str(tmp_path / "notes.txt")
        _, rows, said = run(program, tmp_path, {"providers": [{"id": "http", "config": config}]})
        [output] = outputs(rows)
        assert (output["method"], output["headers"]["x-own"]) == ("POST", "hi"), said
        parts = parts_of(output)
        text = {name: part.get_payload(decode=True) for name, part in parts.items()}
        assert (text["question"], text["of hi"]) == (b"SAY HI\r\nplease", b"7")
        assert parts["photo"].get_filename() == "photo.png" and parts["photo"].get_content_type() == "image/png"
        assert text["photo"] == bytes(range(256)) and text["notes"] == b"notes of {{x}}"
        assert parts["notes"].get_filename() == "hi %221%22.md" and parts["notes"].get_content_type() == "text/markdown"
        assert text["made"].startswith(b"%PDF-1.4") and b"about SAY HI" in text["made"]
        assert (parts["made"].get_content_type(), parts["image"].get_filename()) == ("application/pdf", "hi.png")
        assert text["image"].startswith(b"\x89PNG")


def test_a_busy_service_is_asked_as_often_as_wanted(sandcove, service, tmp_path):
    for program in programs(sandcove):
        service.asked.clear()
        _, [row], _ = run(program, tmp_path, http(service, url=f"{service.url}/busy/2", maxRetries=2))
        assert (row["success"], len(service.asked)) == (True, 3)
    service.asked.clear()
    _, [row], _ = run(sandcove, tmp_path, http(service, url=f"{service.url}/busy/9", maxRetries=1))
    assert (row["failureReason"], len(service.asked)) == (2, 2) and "429" in row["error"]
    # Of an account without money nothing else can be expected.
    for program in programs(sandcove):
        service.asked.clear()
        _, [row], _ = run(program, tmp_path, http(service, url=f"{service.url}/empty", maxRetries=3))
        assert (row["failureReason"], len(service.asked)) == (2, 1) and "429" in row["error"]


def test_tokens_are_estimated(sandcove, service, tmp_path):
    for program in programs(sandcove):
        config = {"transformResponse": "'one two three'", "tokenEstimation": {"enabled": True, "multiplier": 2}}
        _, [row], _ = run(program, tmp_path, http(service, **config))
        usage = row["response"]["tokenUsage"]
        assert (usage["prompt"], usage["completion"], usage["total"]) == (4, 6, 10)


def test_tools_are_for_the_body(sandcove, service, tmp_path):
    tools = [{"type": "function", "function": {"name": "f"}}]
    for program in programs(sandcove):
        _, rows, _ = run(program, tmp_path, http(service, tools=tools, tool_choice="auto", body={"tools": "{{tools}}", "choice": "{{tool_choice}}"}))
        assert json.loads(outputs(rows)[0]["body"]) == {"tools": tools, "choice": "auto"}


def test_text_is_sent_as_a_form(sandcove, service, tmp_path):
    for program in programs(sandcove):
        _, rows, _ = run(program, tmp_path, http(service, headers={}, body="text={{prompt | urlencode}}"))
        [output] = outputs(rows)
        assert (output["body"], output["headers"]["content-type"]) == ("text=Say%20hi", "application/x-www-form-urlencoded")


def test_a_transform_sees_the_reply(sandcove, service, tmp_path):
    for program in programs(sandcove):
        code = "[context.response.status, context.response.statusText, JSON.parse(context.response.data).method].join()"
        _, rows, _ = run(program, tmp_path, http(service, transformResponse=code))
        assert outputs(rows) == ["200,OK,POST"]


def test_a_webhook_that_is_not_there_fails_at_once(sandcove, tmp_path):
    check = {"type": "webhook", "value": f"http://127.0.0.1:{free_port()}/"}
    started = time.monotonic()
    code, [row], _ = run(sandcove, tmp_path, {"providers": ["echo"], "tests": [{"vars": {"x": "hi"}, "assert": [check]}]},
                         PROMPTFOO_REQUEST_BACKOFF_MS="5000")
    assert (code, row["failureReason"]) == (100, 1) and "Webhook error" in row["error"]
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tls": {"pfxPath": "x.p12"}}, "`config.tls.pfxPath` is not supported; set `certPath` and `keyPath`; `openssl pkcs12"),
        ({"tls": {"caPath": "none.pem"}}, "`config.tls.caPath`: file not found"),
        ({"auth": {"type": "digest"}}, "`config.auth` of type `digest` is not supported"),
        ({"signatureAuth": {"keystorePath": "x.jks"}}, "`config.signatureAuth.keystorePath` is not supported"),
        ({"multipart": {"parts": [{"kind": "file", "name": "a", "source": {"type": "generated", "format": "jpeg"}}]}, "body": None}, "use pdf or png"),
        ({"session": {"url": "x"}}, "`config.session` needs `responseParser`"),
    ],
)
def test_what_is_missing_is_refused_before_any_call(sandcove, service, tmp_path, config, message):
    code, rows, said = run(sandcove, tmp_path, http(service, **config))
    assert (code, rows, service.asked) == (1, None, [])
    assert message in said and "promptfooconfig.yaml:1:" in said
