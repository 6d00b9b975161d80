"""Builds of templates by a team, without an SDK in between: for what no SDK would send."""

from __future__ import annotations

import hashlib
import uuid

import requests

from harness.server import wait_until
from harness.teams import Team


def step(kind: str, *args: str, **members) -> dict:
    return {"type": kind, "args": list(args), **members}


class RawBuilds:
    """Builds of one team."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._templates: set[str] = set()
        # Links are asked for in the name of one build that is never started.
        self._links = f"raw-{uuid.uuid4().hex[:12]}"

    def begin(self, name: str | None = None) -> tuple[str, str]:
        """Reserves a build; returns the ids of template and build."""
        answer = self.team.call("POST", "/v3/templates", {"name": name or f"raw-{uuid.uuid4().hex[:12]}"})
        assert answer.status_code == 202, answer.text
        ids = answer.json()["templateID"], answer.json()["buildID"]
        self._templates.add(ids[0])
        return ids

    def run(self, *steps: dict, deadline_s: float = 600, **members) -> dict:
        """Builds, on the built-in base unless it says otherwise; returns the last status."""
        ids = self.begin()
        if not any(key.startswith("from") for key in members):
            members["fromTemplate"] = "base"
        answer = self.team.call("POST", f"/v2/templates/{ids[0]}/builds/{ids[1]}", {"steps": list(steps), **members})
        if answer.status_code != 202:
            # One that waits would count against the team.
            self.team.call("DELETE", f"/templates/{ids[0]}")
            return {"status": "refused", "templateID": ids[0], "reason": answer.json()}
        return self.told(ids, deadline_s)

    def told(self, ids: tuple[str, str], deadline_s: float = 600) -> dict:
        answers = []

        def is_over() -> bool:
            answers.append(self.team.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status").json())
            return answers[-1]["status"] in ("ready", "error")

        wait_until(is_over, deadline_s, f"the end of build {ids[1]}")
        return answers[-1]

    def link(self, digest: str) -> dict:
        """What the server says about uploading a file set."""
        answer = self.team.call("GET", f"/templates/{self.begin(self._links)[0]}/files/{digest}")
        assert answer.status_code == 201, answer.text
        return answer.json()

    def upload(self, data: bytes, digest: str | None = None) -> tuple[str, int]:
        """Uploads an archive; returns the hash it has, and the status of the upload."""
        digest = digest or hashlib.sha256(data + uuid.uuid4().bytes).hexdigest()
        link = self.link(digest)
        answer = requests.put(link["url"], data=data, headers=link.get("headers") or {}, timeout=300)
        return digest, answer.status_code

    def copy(self, data: bytes, source: str = "src", target: str = "/opt/target", **options) -> dict:
        """A build that copies an archive."""
        digest, status = self.upload(data)
        if status >= 300:
            return {"status": "refused", "reason": {"message": f"upload: {status}"}}
        return self.run(step("COPY", source, target, "", "", filesHash=digest), **options)

    def clear(self) -> None:
        for template in self._templates:
            self.team.call("DELETE", f"/templates/{template}")
