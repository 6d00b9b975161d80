"""A team of one's own on a server under test, with limits, and its calls without an SDK in between."""

from __future__ import annotations

import uuid
from typing import Any

import requests

from harness.server import ADMIN_TOKEN


class Team:
    """A team with small limits, its key, and calls with that key."""

    def __init__(self, url: str, **limits: int) -> None:
        self.url = url
        self.session = requests.Session()
        made = self.admin("POST", "/admin/teams", {"name": f"team {uuid.uuid4()}", "limits": limits})
        assert made.status_code == 201, made.text
        self.id = made.json()["id"]
        key = self.admin("POST", f"/admin/teams/{self.id}/api-keys", {"name": "tests"})
        assert key.status_code == 201, key.text
        self.key = key.json()["key"]

    @property
    def account(self) -> str:
        """The quota group that the team's snapshots are charged to."""
        return f"2/{int(self.id.replace('-', '')[:12], 16)}"

    def admin(self, method: str, path: str, body: Any = None) -> requests.Response:
        headers = {"X-Admin-Token": ADMIN_TOKEN}
        return self.session.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=300)

    def limit(self, **limits: int) -> None:
        assert self.admin("PATCH", f"/admin/teams/{self.id}", {"limits": limits}).status_code == 200

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        headers = {"X-API-Key": self.key, **options.pop("headers", {})}
        return self.session.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=300, **options)

    def create(self, **members: Any) -> str:
        answer = self.call("POST", "/sandboxes", {"templateID": "base", "timeout": 600, **members})
        assert answer.status_code == 201, answer.text
        return answer.json()["sandboxID"]

    def pause_mode(self, sandbox: str) -> str | None:
        return self.call("GET", f"/sandboxes/{sandbox}").json().get("pauseMode")

    def clear(self) -> None:
        """Removes everything that the team has."""
        self.admin("POST", f"/admin/teams/{self.id}/sandboxes/kill")
        for volume in self.call("GET", "/volumes").json():
            self.call("DELETE", f"/volumes/{volume['volumeID']}")
        for secret in self.call("GET", "/secrets").json():
            self.call("DELETE", f"/secrets/{secret['secretID']}")
        for webhook in self.call("GET", "/events/webhooks").json():
            self.call("DELETE", f"/events/webhooks/{webhook['id']}")
        while snapshots := self.call("GET", "/snapshots").json():
            for snapshot in snapshots:
                self.call("DELETE", f"/templates/{snapshot['snapshotID'].replace('/', '%2F').replace(':', '%3A')}")
