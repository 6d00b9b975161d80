"""What depends on the kernel and on the version of control groups, against the server that E2B_API_URL names. Slow machines are
fine: nothing here has a time limit below minutes."""

import time

from e2b import CommandExitException, SandboxException
from e2b_code_interpreter import Sandbox

MINUTES = {"timeout": 600, "request_timeout": 600}


def ready() -> Sandbox:
    """The first sandbox with an interpreter: there is none before the template's warm process is, which takes its time."""
    for _ in range(20):
        try:
            return Sandbox.create(timeout=3600, request_timeout=600)
        except SandboxException as error:
            print("not yet:", error)
            time.sleep(15)
    raise SystemExit("no sandbox could be started")


def settles(what: str, probe) -> None:
    for _ in range(60):
        if probe():
            return print("ok:", what)
        time.sleep(2)
    raise SystemExit(f"not so: {what}")


sandbox = ready()
print(sandbox.commands.run("uname -r; cat /proc/self/cgroup", **MINUTES).stdout)
assert sandbox.run_code("import pandas as pd; kept = pd.DataFrame({'a': [1, 2]}); int(kept.a.sum())", **MINUTES).text == "3"

sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.2; done", background=True, timeout=0)
settles("a counter counts", lambda: int(sandbox.commands.run("cat count || echo 0", **MINUTES).stdout or 0) > 3)
sandbox.pause(request_timeout=600)
sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=3600, request_timeout=600)
before = int(sandbox.commands.run("cat count", **MINUTES).stdout)
settles("it goes on after a pause", lambda: int(sandbox.commands.run("cat count", **MINUTES).stdout or 0) > before)
assert sandbox.run_code("len(kept)", **MINUTES).text == "2"

try:
    sandbox.commands.run("python3 -c 'held = bytearray(64 << 30)' || python3 -c 'held = bytearray(3 << 30)'", **MINUTES)
    raise SystemExit("not so: memory is limited")
except CommandExitException:
    print("ok: memory is limited")
assert sandbox.commands.run("echo here", **MINUTES).stdout == "here\n"

sandbox.commands.run("head -c 100000000 /dev/urandom > big; sync", **MINUTES)
settles("the disk is counted", lambda: any(one.disk_used > 90_000_000 for one in sandbox.get_metrics()[-1:]))
assert any(one.cpu_used_pct > 0 and one.mem_used > 0 for one in sandbox.get_metrics())

copy = Sandbox.create(sandbox.create_snapshot(request_timeout=600).snapshot_id, timeout=600, request_timeout=600)
assert copy.commands.run("stat --format %s big", **MINUTES).stdout == "100000000\n"
assert copy.run_code("6 * 7", **MINUTES).text == "42"
for one in (copy, sandbox):
    assert one.kill(request_timeout=600)
print("all is well")
