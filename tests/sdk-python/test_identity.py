"""Workload identity: tokens that say which sandbox a request comes from. They arrive at a host in a header, are signed with a key that the server
publishes, and never enter the sandbox."""

import base64
import json
import stat
import subprocess

import pytest
import requests
from e2b import Sandbox, Secret
from test_rules import arrivals, fetch, internet  # noqa: F401
from test_names import run

AUDIENCE = "sts.amazonaws.com"
IAM = {"tokens": {"aws": Secret.iam_token(audience=AUDIENCE, token_type="JWT-SVID")}}
RULES = {"api.example.com": [{"transform": lambda context: {"headers": {"Authorization": f"Bearer {context.iam.tokens['aws']}"}}}]}


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def keys(server) -> list[dict]:
    return requests.get(f"{server.url}/.well-known/jwks.json", timeout=300).json()["keys"]


def verifies(token: str, key: dict, directory) -> bool:
    """Whether openssl finds that the token was signed with a published key."""
    signed, signature = token.rsplit(".", 1)
    # The key as SubjectPublicKeyInfo, and the signature as a sequence of two integers.
    begin = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
    (directory / "key").write_bytes(begin + decoded(key["x"]) + decoded(key["y"]))
    raw = decoded(signature)
    integers = b""
    for number in (raw[:32], raw[32:]):
        number = number.lstrip(b"\0")
        number = b"\0" + number if number[0] & 0x80 else number
        integers += bytes([2, len(number)]) + number
    (directory / "signature").write_bytes(bytes([0x30, len(integers)]) + integers)
    (directory / "signed").write_text(signed)
    command = ["openssl", "dgst", "-sha256", "-verify", "key", "-keyform", "DER", "-signature", "signature", "signed"]
    return subprocess.run(command, cwd=directory, capture_output=True).returncode == 0


def bearer(arrivals) -> str:  # noqa: F811
    return arrivals.one()["headers"]["authorization"].removeprefix("Bearer ")


def test_a_token_arrives_and_is_checked_with_what_the_server_publishes(server, arrivals, tmp_path):  # noqa: F811
    box = Sandbox.create(timeout=600, iam=IAM, network={"rules": RULES})
    try:
        for options in (["--http1.1"], ["--http2"]):
            assert fetch(box, "https://api.example.com/", *options) is not None
            token = bearer(arrivals)
            header, claims = (json.loads(decoded(part)) for part in token.split(".")[:2])
            [key] = [one for one in keys(server) if one["kid"] == header["kid"]]
            assert (header["alg"], key["kty"], key["crv"], "d" in key) == ("ES256", "EC", "P-256", False)
            assert verifies(token, key, tmp_path)
            head, body, signature = token.split(".")
            assert not verifies(f"{head}.{body[:-2]}AA.{signature}", key, tmp_path)
            assert claims["aud"] == AUDIENCE and claims["sandbox_id"] == box.sandbox_id
            assert claims["sub"] == f"spiffe://localhost/team/{claims['team_id']}/sandbox/{box.sandbox_id}"
            assert claims["exp"] - claims["iat"] == 300 and claims["template_id"]
            configuration = requests.get(f"{server.url}/.well-known/openid-configuration", timeout=300).json()
            assert claims["iss"] == configuration["issuer"] and configuration["jwks_uri"].startswith(claims["iss"])
        assert run(box, f"env | grep -c {AUDIENCE[:-1]}[m]") is None
    finally:
        box.kill()


def test_tokens_outlive_the_server_and_a_pause_and_keys_are_rotated(server, arrivals, tmp_path):  # noqa: F811
    box = Sandbox.create(timeout=600, iam=IAM, network={"rules": RULES})
    try:
        assert fetch(box, "https://api.example.com/") is not None
        before = bearer(arrivals)
        key, *_ = keys(server)
        path = server.data_dir / "identity.key"
        assert path.stat().st_uid == 0 and stat.S_IMODE(path.stat().st_mode) == 0o600
        subprocess.run([server.binary, "--data-dir", str(server.data_dir), "secret", "rotate-signing-key"], check=True)
        server.kill9()
        server.start()
        published = keys(server)
        assert len(published) == 2 and published[1] == key and verifies(before, published[1], tmp_path)
        box.pause(mode="filesystem")
        box = Sandbox.connect(box.sandbox_id)
        assert fetch(box, "https://api.example.com/") is not None
        after = bearer(arrivals)
        assert verifies(after, published[0], tmp_path) and not verifies(after, key, tmp_path)
    finally:
        box.kill()


def test_a_token_that_was_not_registered_is_no_request(arrivals):  # noqa: F811
    box = Sandbox.create(timeout=600, iam=IAM)
    try:
        box.update_network({"rules": {"api.example.com": [{"transform": {"headers": {"A": "${e2b.identity.tokens.gcp}"}}}]}})
        assert "the sandbox has no token `gcp`" in fetch(box, "https://api.example.com/")
        assert arrivals.new() == []
    finally:
        box.kill()
    with pytest.raises(Exception, match="must be JWT-SVID"):
        Sandbox.create(timeout=60, iam={"tokens": {"a": Secret.iam_token(audience="b", token_type="other")}})
