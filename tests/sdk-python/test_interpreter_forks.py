"""Kernels of two sandboxes may be copies of one warm process. Nothing of that may show."""

import json
import re

import pytest

from harness.interpreters import clients, together  # noqa: F401
from harness.server import is_forked, wait_until

LOOK = """
import json, os, random, secrets, ssl, tempfile, uuid
import numpy
links = {}
for name in os.listdir('/proc/self/fd'):
    try: links[name] = os.readlink(f'/proc/self/fd/{name}')
    except OSError: pass  # the listing itself
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
print(json.dumps({
    'random': [random.random(), random.getrandbits(64), random.Random().random(), random.SystemRandom().random()],
    'numpy': [float(numpy.random.rand()), float(numpy.random.default_rng().random())],
    'uuid': [str(uuid.uuid1()), str(uuid.uuid4())],
    'bytes': [os.urandom(16).hex(), ssl.RAND_bytes(16).hex(), secrets.token_hex(16)],
    'tempfile': [tempfile.mktemp()],
    'links': links,
    'status': status,
    'maps': open('/proc/self/maps').read(),
    'environment': dict(os.environ),
}))
"""


def look(sandbox, context=None):
    execution = sandbox.run_code(LOOK, context=context)
    assert execution.error is None, execution.error.traceback
    return json.loads("".join(execution.logs.stdout))


@pytest.fixture(scope="module")
def pair(clients, server):
    """Two sandboxes whose kernels are copies of one process."""
    if not hasattr(type(server), "kill9"):
        return together(clients.create, clients.create)
    made = []

    def are_copies() -> bool:
        made[:] = together(clients.create, clients.create)
        return all(is_forked(server, sandbox) for sandbox in made)

    wait_until(are_copies, what="two sandboxes with forked interpreters")
    return made


@pytest.fixture(scope="module")
def seen(pair):
    """What the first cells of four kernels see: the default one and a second one in each sandbox."""
    second = [sandbox.create_code_context() for sandbox in pair]
    return [look(pair[0]), look(pair[1]), look(pair[0], second[0]), look(pair[1], second[1])]


@pytest.mark.parametrize("source", ["random", "numpy", "uuid", "bytes", "tempfile"])
def test_kernels_draw_different_random_numbers(seen, source):
    drawn = [value for kernel in seen for value in kernel[source]]
    assert len(set(drawn)) == len(drawn)


def test_a_kernel_holds_no_descriptors_but_its_own(seen):
    for kernel in seen:
        for link in kernel["links"].values():
            assert link == "/dev/null" or link.startswith(("pipe:[", "socket:[", "anon_inode:[eventpoll]")), link
        assert len(kernel["links"]) <= 8
    for kind in ("pipe", "socket"):
        inodes = [link for kernel in seen for link in kernel["links"].values() if link.startswith(kind)]
        assert len(set(inodes)) == len(inodes)


OWN_MEMORY = """
import pandas as pd
pd.DataFrame({"a": [1, 2, 3], "b": [1.0, 2.0, 3.0]}).describe().to_html()
for line in open("/proc/self/smaps_rollup"):
    if line.startswith("Private_Dirty"):
        print(int(line.split()[1]))
"""


def test_a_kernel_shares_the_memory_it_only_reads(pair):
    """Half of what it would have for itself if it counted references to what the warm process has loaded."""
    execution = pair[0].run_code(OWN_MEMORY)
    assert execution.error is None, execution.error.traceback
    assert int("".join(execution.logs.stdout)) < 12 * 1024


def test_signals_that_the_server_ignores_work_inside(pair, seen):
    """A shell has what it starts in the background ignore them; a server so started must not pass that on."""
    for kernel in seen:
        assert int(kernel["status"]["SigIgn"], 16) & 0b111 == 0
    tries = "for signal in HUP INT QUIT; do sh -c \"kill -$signal \\$\\$; sleep 9\"; echo $?; done"
    execution = pair[0].run_code(f"import subprocess; print(subprocess.run(['sh', '-c', {tries!r}], capture_output=True, text=True).stdout)")
    ended = ["129", "130", "131"]
    assert "".join(execution.logs.stdout).split() == ended
    assert pair[0].commands.run(tries).stdout.split() == ended


PLACES = """
import pandas as pd
shell, frame, formatter = type(get_ipython()), pd.DataFrame, type(get_ipython().display_formatter)
functions = [shell.run_cell, shell._run_cell, shell.run_code, shell.should_run_async, shell.transform_cell, formatter.format,
             frame.describe, frame.__init__, frame.__repr__, frame.to_html, pd.Series.__init__, pd.Index.__new__]
addresses = [id(function.__code__) for function in functions]
print(max(sum(start <= address < start + (1 << 20) for address in addresses) for start in addresses))
"""

#: Debuggers and profilers write to the code of what they watch.
WATCHED = """
import dis, io, json, sys, cProfile, pstats
calls = []
sys.settrace(lambda frame, event, argument: calls.append(frame.f_code.co_name))
text = pd.DataFrame({"a": [1, 2]}).describe().to_html()
sys.settrace(None)
profile = cProfile.Profile()
assert profile.runcall(lambda: pd.DataFrame({"a": [1, 2]}).describe().to_html()) == text
assert pstats.Stats(profile, stream=io.StringIO()).total_calls > 1000
dis.dis(pd.DataFrame.describe, file=io.StringIO())
assert pd.DataFrame({"a": [1, 2]}).describe().to_html() == text
print(len(calls) > 500, "describe" in calls)
"""


def test_code_that_counts_its_calls_lies_side_by_side(pair):
    """What first cells run would be written to in some five hundred pages more if it lay where its modules were loaded."""
    execution = pair[0].run_code(PLACES)
    assert execution.error is None, execution.error.traceback
    assert int("".join(execution.logs.stdout)) >= 8, "of twelve functions"
    execution = pair[0].run_code(WATCHED)
    assert execution.error is None, execution.error.traceback
    assert "".join(execution.logs.stdout) == "True True\n"


def test_a_kernel_is_confined_like_everything_in_its_sandbox(pair, seen):
    cap_sys_admin, cap_sys_module, cap_sys_rawio, cap_bpf = 1 << 21, 1 << 16, 1 << 17, 1 << 39
    for kernel in seen:
        status = kernel["status"]
        assert status["Seccomp"] == "2"
        for name in ("CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb"):
            assert int(status[name], 16) & (cap_sys_admin | cap_sys_module | cap_sys_rawio | cap_bpf) == 0
    # A kernel that was forked outside is confined exactly as a command that was started inside.
    command = pair[0].commands.run("cat /proc/self/status; readlink /proc/self/ns/*; cat /proc/self/cgroup", user="root").stdout
    kernel = pair[0].run_code("!cat /proc/self/status; readlink /proc/self/ns/*; cat /proc/self/cgroup")
    kernel = "".join(kernel.logs.stdout).replace("\r", "")

    def confinement(text):
        kept = ("CapBnd", "CapEff", "CapPrm", "Seccomp:", "user:[", "pid:[", "mnt:[", "net:[", "ipc:[", "uts:[")
        lines = [line for line in text.splitlines() if line.startswith(kept)]
        # The control groups by what is seen of them: `/` in every hierarchy that limits something.
        return lines + [line for line in text.splitlines() if re.match(r"\d+:[a-z,]*:/", line)]

    assert confinement(kernel) == confinement(command)


def test_a_kernel_lives_among_the_processes_of_its_sandbox(pair, seen):
    for sandbox, kernel in zip(pair, seen, strict=False):
        assert kernel["status"]["NSpid"].split()[-1] == sandbox.run_code("import os; os.getpid()").text
        listed = sandbox.commands.run("ps -e -o pid= | wc -l; cat /proc/1/comm", user="root").stdout.split()
        assert int(listed[0]) < 20 and "sandcove" in listed[1]
        parent = int(kernel["status"]["PPid"])
        assert parent > 0


def test_a_kernel_maps_no_files_of_the_host(pair, seen):
    for sandbox, kernel in zip(pair, seen, strict=False):
        files = {line.split(maxsplit=5)[5] for line in kernel["maps"].splitlines() if " /" in line}
        files = {name for name in files if name.startswith("/") and not name.startswith(("/dev/", "/memfd:"))}
        assert files and not [name for name in files if name.endswith("(deleted)")]
        missing = sandbox.commands.run("\n".join(f"test -e '{name}' || echo '{name}'" for name in files), user="root")
        assert missing.stdout == ""


def test_no_state_of_one_sandbox_is_in_the_other(pair):
    one, two = pair
    marker = f"marker-{one.sandbox_id}"
    one.run_code(f"import os, sys, builtins\nbuiltins.leak = sys.leak = leak = '{marker}'\nos.environ['LEAK'] = leak")
    one.run_code("open('/tmp/leak', 'w').write(leak); open('/dev/shm/leak', 'w').write(leak); 42")
    program = (
        "import os, sys, builtins\n[hasattr(builtins, 'leak'), hasattr(sys, 'leak'), 'leak' in globals(),"
        " 'LEAK' in os.environ, os.path.exists('/tmp/leak'), os.path.exists('/dev/shm/leak')]"
    )
    assert two.run_code(program).text == "[False, False, False, False, False, False]"
    assert one.create_code_context().id != two.create_code_context().id
    fresh = two.create_code_context()
    assert two.run_code(program, context=fresh).text == "[False, False, False, False, False, False]"


def test_each_kernel_has_the_variables_of_its_own_sandbox(clients):
    one, two = (clients.create(envs={"WHOSE": name}) for name in ("one", "two"))
    for sandbox, name in ((one, "one"), (two, "two")):
        environment = look(sandbox)["environment"]
        assert environment["WHOSE"] == name
        assert environment["E2B_SANDBOX_ID"] == sandbox.sandbox_id
        assert not [key for key in environment if key.startswith("SANDCOVE")]


def test_history_and_counts_start_anew(clients):
    sandbox = clients.create()
    execution = sandbox.run_code("In, Out, len(get_ipython().history_manager.input_hist_raw)")
    assert execution.execution_count == 1
    assert execution.text.startswith("(['', ")
