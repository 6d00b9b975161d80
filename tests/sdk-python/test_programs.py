"""What people run in a sandbox still runs, whatever the walls refuse. One sandbox, into which apt installs everything at once; each program
then does what it is for.

Packages come from the registries alone. A test whose registry does not answer is skipped and names it."""

import json
import re

import pytest
from e2b import CommandExitException
from e2b_code_interpreter import Sandbox

pytestmark = pytest.mark.programs
PACKAGES = ["postgresql", "chromium", "default-jdk-headless", "gdb", "strace", "cargo", "fonts-dejavu-core"]
# What apt, pip, npm and cargo say when nobody answers.
UNREACHABLE = re.compile(
    r"Temporary failure resolving|Could not connect|Failed to fetch|Connection (?:failed|timed out|refused)|Max retries exceeded"
    r"|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|Could not resolve host|failed to download from|503 +Service"
)


@pytest.fixture(scope="module")
def box(server):
    box = Sandbox.create(timeout=7200)
    yield box
    box.kill()


def run(box, command, user="user", timeout=1200):
    # A directory that every user may enter.
    return box.commands.run(command, user=user, cwd="/tmp", timeout=timeout).stdout


def install(box, registry, command, timeout=1800):
    """Runs an installer; a registry that does not answer is no failure of ours."""
    try:
        return box.commands.run(command, user="root", timeout=timeout).stdout
    except CommandExitException as failed:
        said = failed.stdout + failed.stderr
        if UNREACHABLE.search(said):
            pytest.skip(f"{registry} does not answer")
        raise AssertionError(said[-4000:]) from failed


@pytest.fixture(scope="module")
def installed(box):
    """Everything from Debian, with its maintainer scripts: they make users, start helpers, change modes and set capabilities."""
    options = "-o Acquire::Retries=5 -y --no-install-recommends"
    command = f"export DEBIAN_FRONTEND=noninteractive; apt-get -o Acquire::Retries=5 update && apt-get {options} install {' '.join(PACKAGES)}"
    install(box, "Debian's mirror", command)
    return box


def test_apt_installs_packages_with_their_scripts(installed):
    broken = [line for line in run(installed, "dpkg --audit; dpkg -l").splitlines() if re.match(r"i[^i ]", line)]
    assert not broken
    assert run(installed, "getent passwd postgres").startswith("postgres:")
    assert run(installed, "find /usr -perm -4000 -name su | head -1").strip(), "set-user-id bits are kept"


def test_postgresql_answers_queries(installed):
    """As its own user: shared memory, semaphores, fsync, many processes, a local and a network socket."""
    start = "pg_ctlcluster --skip-systemctl-redirect $(pg_lsclusters -h | awk '{print $1, $2}') start"
    run(installed, f"test -d /var/lib/postgresql/*/main || pg_createcluster $(ls /usr/lib/postgresql) main; {start}", "root")
    query = "create table t as select g, md5(g::text) m from generate_series(1, 100000) g; create index on t (m); " \
        "set max_parallel_workers_per_gather = 2; select count(*), min(m) from t; checkpoint;"
    assert "100000" in run(installed, f"psql -qtA -c '{query}'", "postgres")
    run(installed, "psql -qc \"create role web login password 'x'\"", "postgres")
    assert run(installed, "PGPASSWORD=x psql -h 127.0.0.1 -U web -d postgres -qtAc 'select 6 * 7'").strip() == "42"


@pytest.mark.parametrize("wall", ["--no-sandbox", "--disable-setuid-sandbox"])
def test_chromium_shows_a_page(installed, wall):
    installed.files.write("/tmp/page.html", "<p id=p></p><script>p.textContent = [6, 7].reduce((a, b) => a * b) + ' answers'</script>")
    flags = f"--headless {wall} --disable-gpu --disable-dev-shm-usage --user-data-dir=/tmp/chromium"
    command = f"timeout 600 chromium {flags} --dump-dom file:///tmp/page.html 2>/tmp/chromium.log"
    if wall == "--no-sandbox":
        assert "42 answers" in run(installed, command)
        run(installed, f"timeout 600 chromium {flags} --screenshot=/tmp/page.png file:///tmp/page.html 2>/dev/null")
        assert installed.files.read("/tmp/page.png", format="bytes")[1:4] == b"PNG"
        return
    # Its own sandbox needs namespaces, which no sandbox may make. It must say so, and not hang.
    with pytest.raises(CommandExitException):
        run(installed, command)
    assert "sandbox" in run(installed, "cat /tmp/chromium.log").lower()


def test_a_jvm_runs_threads_and_compiles(installed):
    source = """
import java.util.stream.*;
class Main { public static void main(String[] a) throws Exception {
    System.out.println(IntStream.range(0, 2_000_000).parallel().mapToLong(i -> i % 7).sum());
    var done = new java.util.concurrent.atomic.AtomicInteger();
    var threads = new Thread[200];
    for (int i = 0; i < 200; i++) { threads[i] = Thread.ofVirtual().start(done::incrementAndGet); }
    for (var t : threads) t.join();
    System.out.println(done + " " + java.nio.file.Files.list(java.nio.file.Path.of("/proc/self/task")).count());
} }
"""
    installed.files.write("/tmp/Main.java", source)
    said = run(installed, "java -Xmx256m /tmp/Main.java").split()
    assert said[0] == str(sum(i % 7 for i in range(2_000_000))) and said[1] == "200"


def test_gdb_stops_a_program_of_ones_own(installed):
    installed.files.write("/tmp/answer.c", "#include <unistd.h>\nint answer = 41;\nint main(void) { answer++; write(1, \"ran\\n\", 4); return answer; }\n")
    run(installed, "gcc -g -O0 -o /tmp/answer /tmp/answer.c")
    commands = " ".join(f"-ex '{one}'" for one in ["break write", "run", "print answer", "set var answer = 7", "continue", "info program"])
    said = run(installed, f"gdb -batch {commands} /tmp/answer 2>&1")
    assert "$1 = 42" in said and "exited with code 07" in said


def test_gdb_joins_a_program_that_runs(installed):
    run(installed, "nohup sleep 6000 >/dev/null 2>&1 & echo $! >/tmp/sleeper")
    assert "nanosleep" in run(installed, "gdb -batch -p $(cat /tmp/sleeper) -ex 'backtrace' 2>&1; kill $(cat /tmp/sleeper)")


def test_strace_shows_calls(installed):
    said = run(installed, "strace -f -e trace=execve,openat,write sh -c 'cat /etc/hostname; echo done' 2>&1")
    assert said.count("execve(") >= 2 and '/etc/hostname' in said and "done" in said


def test_cargo_builds_a_crate(installed):
    """A crate with a dependency, a build script, threads and tests."""
    said = install(
        installed,
        "crates.io",
        "export CARGO_NET_RETRY=10; rm -rf /tmp/small && cargo new --quiet /tmp/small && cd /tmp/small && cargo add --quiet itoa@1.0.14 && "
        "printf 'fn main() { println!(\"cargo::rustc-env=BUILT=yes\") }' >build.rs && "
        "printf 'fn main() { let t = std::thread::spawn(|| itoa::Buffer::new().format(42u8).to_owned());"
        " println!(\"{} {}\", t.join().unwrap(), env!(\"BUILT\")) }\\n#[test] fn t() { assert_eq!(1, 1) }' >src/main.rs && "
        "cargo run --quiet --release && cargo test --quiet 2>&1",
    )
    assert said.startswith("42 yes\n") and "1 passed" in said


def test_pip_builds_an_extension(box):
    """From source, with the compiler that is in the template."""
    install(box, "PyPI", "pip install --quiet --retries 10 --timeout 60 --no-binary :all: --no-cache-dir --force-reinstall MarkupSafe==3.0.2")
    assert "native" in run(box, "python3 -c 'import markupsafe._speedups; print(\"native\")'")


def test_npm_runs_esbuild(box):
    """A native program that a script of its package chooses and installs."""
    install(box, "npm's registry", "mkdir -p /tmp/web && cd /tmp/web && npm init -y >/dev/null && npm install --silent --fetch-retries 5 esbuild@0.24.0")
    box.files.write("/tmp/web/a.ts", "export const answer: number = 6 * 7; console.log(`answer ${answer}`)")
    assert "answer 42" in run(box, "cd /tmp/web && npx esbuild a.ts --bundle --platform=node --minify | node", "root")


def test_git_keeps_a_repository(box):
    run(box, "rm -rf /tmp/one /tmp/two && git init -q -b main /tmp/one && cd /tmp/one && git config user.email a@b.c && git config user.name a "
        "&& seq 1000 >numbers && git add . && git commit -qm first && git clone -q /tmp/one /tmp/two && cd /tmp/two "
        "&& git config user.email a@b.c && git config user.name a && git checkout -qb other && echo more >>numbers && git commit -qam second "
        "&& git push -q origin other && cd /tmp/one && git merge -q other && git gc -q && git fsck")  # fmt: skip
    assert run(box, "cd /tmp/one && git log --format=%s && tail -1 numbers") == "second\nfirst\nmore\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_ping(box, user):
    assert "1 received" in run(box, "ping -c 1 -W 60 127.0.0.1", user)
    assert "1 received" in run(box, "ping -6 -c 1 -W 60 ::1", user)


def test_eight_threads_of_numpy(box):
    code = """
import json, os, threading
os.environ["OPENBLAS_NUM_THREADS"] = "8"
import numpy as np
def work(seed, out):
    m = np.random.default_rng(seed).random((400, 400))
    out[seed] = float(np.abs(np.linalg.inv(m) @ m - np.eye(400)).max())
out = {}
threads = [threading.Thread(target=work, args=(n, out)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(sorted(out.values())))
"""
    ran = box.run_code(code)
    assert ran.error is None, ran.error
    errors = json.loads("".join(ran.logs.stdout))
    assert len(errors) == 8 and errors[-1] < 1e-6


def test_a_server_of_many_processes(box):
    """Workers that share locks and memory, and wait for each other."""
    code = """
import multiprocessing as mp, os
together = mp.Barrier(8)
def square(n):
    together.wait(600)
    return n * n, os.getpid()
if __name__ == "__main__":
    with mp.Pool(8) as pool: done = pool.map(square, range(800), chunksize=1)
    print(sum(n for n, _ in done), len({p for _, p in done}))
"""
    box.files.write("/tmp/pool.py", code)
    assert run(box, "python3 /tmp/pool.py") == "170346800 8\n"
