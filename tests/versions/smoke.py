"""The same few steps for every Python release; says on one line what worked. Releases before 2.7 find the server `--by-name`."""

import inspect
import os
import sys
import tempfile
import urllib.request
import uuid
from importlib.metadata import version
from pathlib import Path

if "--by-name" in sys.argv:
    import by_name  # noqa: F401 -- before the release itself

from e2b import Sandbox

try:
    from e2b import CommandExitException
except ImportError:  # its first home
    from e2b.sandbox.commands.command_handle import CommandExitException

try:
    from e2b import Template
except ImportError:  # those that cannot build
    Template = None

# These never upload what they copy, to no server: they compare the name of a step with a member of an enumeration.
UPLOADS = not version("e2b").startswith("2.1.")

steps = []


def build() -> None:
    """A template with a file, twice: the second time from the cache. And one that fails."""
    name, lines = f"smoke-{uuid.uuid4().hex[:12]}", []
    with tempfile.TemporaryDirectory() as context:
        Path(context, "a.txt").write_text(name)

        def template():
            begun = Template(file_context_path=context).from_template("base")
            begun = begun.copy("a.txt", "/opt/") if UPLOADS else begun.run_cmd(f"printf {name} > /opt/a.txt", user="root")
            return begun.run_cmd("cat /opt/a.txt > note")

        try:
            for _ in range(2):
                Template.build(template(), alias=name, on_build_logs=lambda entry: lines.append(entry.message))
            assert any(line.startswith("CACHED [builder 2/2] RUN") for line in lines), lines
            made = create(name, timeout=300)
            assert made.commands.run("cat note").stdout == name
            made.kill()
            try:
                Template.build(template().run_cmd("exit 3"), alias=name)
                raise AssertionError("a failed build did not raise")
            except Exception as error:
                assert "exit status 3" in str(error), error
        finally:
            api = os.environ.get("E2B_API_URL") or f"https://api.{os.environ['E2B_DOMAIN']}"
            url = f"{api}/templates/{name}"
            delete = urllib.request.Request(url, headers={"X-API-Key": os.environ["E2B_API_KEY"]}, method="DELETE")
            urllib.request.urlopen(delete, timeout=60).close()


def listed(**wishes) -> list[str]:
    found = Sandbox.list(**wishes)
    return [one.sandbox_id for one in (found.next_items() if hasattr(found, "next_items") else found)]


def is_same(one: str, other: str) -> bool:
    """Up to 1.5 ids have the client's behind them, though not in lists."""
    return one.split("-")[0] == other.split("-")[0]


create = getattr(Sandbox, "create", None)
sandbox = create(timeout=300) if create else Sandbox(timeout=300)
try:
    steps.append("create")
    assert sandbox.commands.run("echo hi").stdout == "hi\n"
    try:
        sandbox.commands.run("exit 3")
        raise AssertionError("exit 3 did not raise")
    except CommandExitException as error:
        assert error.exit_code == 3
    steps.append("command")
    # The first releases always have one.
    with_stdin = {"stdin": True} if "stdin" in inspect.signature(sandbox.commands.run).parameters else {}
    background = sandbox.commands.run("cat", background=True, **with_stdin)
    sandbox.commands.send_stdin(background.pid, "x")
    assert sandbox.commands.kill(background.pid) is True
    steps.append("background")
    sandbox.files.write("f.txt", "text")
    assert sandbox.files.read("f.txt") == "text"
    assert "f.txt" in [entry.name for entry in sandbox.files.list(".")]
    sandbox.files.write("b", b"\x00\xff")
    assert bytes(sandbox.files.read("b", format="bytes")) == b"\x00\xff"
    sandbox.files.rename("b", "c")
    sandbox.files.remove("c")
    assert not sandbox.files.exists("c")
    steps.append("files")
    watch = sandbox.files.watch_dir(".")
    sandbox.files.write("watched", "1")
    assert watch.get_new_events()
    watch.stop()
    steps.append("watch")
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("cat f.txt").stdout == "text"
    steps.append("connect")
    sandbox.set_timeout(900)
    assert sandbox.is_running()
    if hasattr(sandbox, "get_info"):
        info = sandbox.get_info()
        assert is_same(info.sandbox_id, sandbox.sandbox_id)
        # The first that had it did not say when the end is.
        if end := getattr(info, "end_at", None):
            assert (end - info.started_at).total_seconds() > 800
    steps.append("timeout")
    assert any(is_same(one, sandbox.sandbox_id) for one in listed())
    steps.append("list")
    if pause := getattr(sandbox, "pause", None) or getattr(sandbox, "beta_pause", None):
        job = sandbox.commands.run("sleep 600", background=True)
        pause()
        assert sandbox.is_running() is False
        assert any(is_same(one, sandbox.sandbox_id) for one in listed())
        steps.append("pause")
        back = Sandbox.connect(sandbox.sandbox_id)
        assert back.is_running() and job.pid in [process.pid for process in back.commands.list()]
        assert back.files.read("f.txt") == "text"
        steps.append("resume")
    running = sandbox.commands.run("sleep 600", background=True)
finally:
    killed = sandbox.kill()
try:
    running.wait()
    raise AssertionError("a command outlived its sandbox")
except Exception as error:
    # Earlier ones pass on whatever their HTTP client says.
    says_why = tuple(map(int, version("e2b").split("."))) >= (2, 39)
    assert not says_why or "killed or reached its end of life" in str(error), error
steps.append("cut")
# The first say nothing.
assert killed in (True, None)
assert not sandbox.is_running()
steps.append("kill")
if Template:
    build()
    steps.append("template")
print("ok:", " ".join(steps))
