"""Template builds through the SDK's two Python flavours, and the removal of what they leave."""

from __future__ import annotations

import inspect
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from e2b import AsyncTemplate, BuildException, Sandbox, Template

from flavours import LOOP
from harness import reports, wheels
from harness.server import API_KEY, wait_until

KINDS = {"sync": Template, "async": AsyncTemplate}


def mark() -> str:
    """Text that no step has had before, so that no cache has it."""
    return uuid.uuid4().hex


def until_runs(pattern: str) -> str:
    """Shell code that ends once a process with such a command line runs: a new process is its parent's copy at first."""
    return f"until pgrep -f '{pattern}' > /dev/null; do sleep 0.05; done"


@dataclass
class Built:
    """A build that has ended well, and what was logged."""

    template_id: str
    build_id: str
    tags: list[str]
    logs: list = field(default_factory=list)

    def lines(self, level: str | None = None) -> list[str]:
        return [entry.message for entry in self.logs if level in (None, entry.level)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    @property
    def cached(self) -> list[int]:
        """Numbers of the steps that came from the cache."""
        return [int(number) for number in re.findall(r"^CACHED \[builder (\d+)/\d+\]", self.text, re.M)]

    @property
    def ran(self) -> list[int]:
        """Numbers of the steps that did not."""
        return [int(number) for number in re.findall(r"^\[builder (\d+)/\d+\] [A-Z]", self.text, re.M)]


class Builds:
    """Builds templates with one flavour of the SDK and one team's key."""

    def __init__(self, server, flavour: str = "sync", key: str = API_KEY) -> None:
        self.server, self.kind, self.key = server, KINDS[flavour], key
        self._names: list[str] = []
        self._boxes: list = []

    def name(self, start: str = "t") -> str:
        """A name that is free, of a template that is deleted in the end."""
        name = f"{start}-{uuid.uuid4().hex[:12]}"
        self._names.append(name)
        return name

    def template(self, context: Path | None = None, **options):
        return self.kind(file_context_path=context, **options)

    def base(self, context: Path | None = None, **options):
        """A template on the built-in one."""
        return self.template(context, **options).from_template("base")

    def base_with_wheels(self, directory: Path):
        """A template on the built-in one whose pip has IPython at hand, and asks no index."""
        return self.base(directory.parent).copy(directory.name, wheels.PLACE, user="root").set_envs(wheels.OFFLINE)

    def ask(self, call: str, *arguments, **options):
        """A call of the class: `build`, `get_tags` and so on."""
        result = getattr(self.kind, call)(*arguments, api_key=self.key, **options)
        return LOOP.run(waited(result)) if inspect.isawaitable(result) else result

    def build(self, template, name: str | None = None, **options) -> Built:
        """Builds and waits. `on_build_logs` is our own."""
        logs: list = []
        try:
            info = self.ask("build", template, name or self.name(), on_build_logs=logs.append, **options)
        except BuildException as failed:
            # Why it failed is in its log, of which the exception has only the last line.
            reports.add(f"end of the log of a build that failed: {failed}", "\n".join(entry.message for entry in logs[-60:]))
            raise
        return Built(info.template_id, info.build_id, info.tags, logs)

    def start(self, template, name: str | None = None, **options):
        """Builds in the background."""
        return self.ask("build_in_background", template, name or self.name(), **options)

    def status(self, info, offset: int | None = None):
        return self.ask("get_build_status", info, logs_offset=offset)

    def ended(self, info, deadline_s: float = 600):
        """The status of a build once it is `ready` or `error`."""
        seen = []

        def is_over() -> bool:
            seen.append(self.status(info))
            return seen[-1].status.value in ("ready", "error")

        wait_until(is_over, deadline_s, f"the end of build {info.build_id}")
        return seen[-1]

    def box(self, template, **options) -> Sandbox:
        """A sandbox made from a template, by name, id or object."""
        reference = getattr(template, "template_id", template)
        box = Sandbox.create(reference, timeout=3600, api_key=self.key, **options)
        self._boxes.append(box)
        return box

    def run(self, template, command: str, **options) -> str:
        """What a command prints in a new sandbox."""
        return self.box(template).commands.run(command, **options).stdout

    def call(self, method: str, path: str, body=None, **options) -> requests.Response:
        """A call without the SDK."""
        headers = {"X-API-Key": self.key, **options.pop("headers", {})}
        return requests.request(method, f"{self.server.url}{path}", json=body, headers=headers, timeout=300, **options)

    def begin(self, name: str | None = None, **members) -> tuple[str, str]:
        """Reserves a build; returns the ids of template and build."""
        answer = self.call("POST", "/v3/templates", {"name": name or self.name(), **members})
        assert answer.status_code == 202, answer.text
        return answer.json()["templateID"], answer.json()["buildID"]

    def go(self, template_id: str, build_id: str, *steps: dict, **members) -> requests.Response:
        """Starts a reserved build."""
        if not any(key.startswith("from") for key in members):
            members["fromTemplate"] = "base"
        body = {"steps": list(steps), "force": False, **members}
        return self.call("POST", f"/v2/templates/{template_id}/builds/{build_id}", body)

    def told(self, template_id: str, build_id: str, deadline_s: float = 600) -> dict:
        """As the server says it, the end of a build."""
        path, answers = f"/templates/{template_id}/builds/{build_id}/status", []

        def is_over() -> bool:
            answers.append(self.call("GET", path).json())
            return answers[-1].get("status") in ("ready", "error")

        wait_until(is_over, deadline_s, f"the end of build {build_id}")
        return answers[-1]

    def listed(self) -> list[dict]:
        return self.call("GET", "/templates").json()

    def delete(self, template: str) -> requests.Response:
        return self.call("DELETE", f"/templates/{quote(template, safe='')}")

    def clear(self) -> None:
        for box in self._boxes:
            box.kill()
        for name in self._names:
            # Builds that go on end with their template.
            answer = self.delete(name)
            assert answer.status_code in (204, 404), f"{name}: {answer.text}"


async def waited(result):
    return await result


def step(kind: str, *args: str, **members) -> dict:
    return {"type": kind, "args": list(args), **members}


def end_of(trace):
    """The innermost frame of a traceback."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace


@pytest.fixture
def builds(server):
    """Builds of one test, with the synchronous flavour."""
    builds = Builds(server)
    yield builds
    builds.clear()


@pytest.fixture
def both(server, flavour):
    """Builds of one test that runs with each flavour."""
    builds = Builds(server, flavour)
    yield builds
    builds.clear()
