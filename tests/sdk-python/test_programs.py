"""What people run in a sandbox still runs, whatever the walls refuse. One sandbox, into which apt installs everything at once; each program
then does what it is for.

Packages come from the registries alone. A test whose registry does not answer is skipped and names it."""

import contextlib
import json
import os
import re
from pathlib import Path

import pytest
import requests
from e2b import CommandExitException
from e2b_code_interpreter import Sandbox

from harness.server import API_KEY, wait_until

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


def test_npm_installs_a_yarn_of_ones_own(box):
    """Over the one of the template."""
    install(box, "npm", "npm install --global --no-audit yarn@1.22.19")
    assert run(box, "yarn --version; command -v yarn") == "1.22.19\n/usr/local/bin/yarn\n"


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


PSQL = "psql -h /tmp/database -p 5433 -U postgres -At postgres"
COUNT = """
import java.io.*; import java.net.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*;
class Count { public static void main(String[] a) throws Exception {
    var ticks = new AtomicLong(); var kept = new ConcurrentHashMap<Integer, String>(); var pool = Executors.newFixedThreadPool(4);
    for (int i = 0; i < 100_000; i++) kept.put(i, "v" + i);
    Executors.newSingleThreadScheduledExecutor().scheduleAtFixedRate(ticks::incrementAndGet, 0, 50, TimeUnit.MILLISECONDS);
    var server = new ServerSocket(7001, 50, InetAddress.getLoopbackAddress());
    for (int asked = 1; ; asked++) try (var peer = server.accept()) {
        var length = pool.submit(() -> kept.values().stream().mapToLong(String::length).sum()).get();
        System.gc();
        peer.getOutputStream().write((asked + " " + length + " " + (ticks.get() > 0) + "\\n").getBytes());
    }
} }
"""
ANSWER = """
const worker = new (require("worker_threads").Worker)(
  "const { parentPort } = require('worker_threads'); let asked = 0; parentPort.on('message', () => parentPort.postMessage(++asked))", { eval: true });
const kept = new Map(Array.from({ length: 50000 }, (_, n) => [n, "v" + n]));
require("fs").watch("/tmp/site", { recursive: true }, (_, name) => kept.set("changed", name));
require("http").createServer((_, response) => {
  worker.once("message", (asked) => response.end(`${asked} ${kept.size} ${kept.get("changed")}\\n`));
  worker.postMessage(1);
}).listen(7002, "127.0.0.1");
"""
ASK_PAGE = """
const page = (await (await fetch("http://127.0.0.1:9222/json")).json()).find((one) => one.type == "page");
const socket = new WebSocket(page.webSocketDebuggerUrl);
await new Promise((opened) => (socket.onopen = opened));
socket.onmessage = (message) => { console.log(JSON.parse(message.data).result.result.value); process.exit(); };
socket.send(JSON.stringify({ id: 1, method: "Runtime.evaluate", params: { expression: "`${count} ${secret}`" } }));
"""
FILES = {
    "/tmp/site/page.html": "<script>let count = 0; setInterval(() => count++, 50); const secret = Math.random()</script>",
    "/tmp/Count.java": COUNT, "/tmp/answer.js": ANSWER, "/tmp/ask.mjs": ASK_PAGE,
}  # fmt: skip


@pytest.fixture
def parked_by_hand(server):
    """The server parks when it is asked."""
    criu = Path(os.environ.get("SANDCOVE_TEST_CRIU", "/usr/local/lib/sandcove-criu"))
    if not (criu / "bin/criu").exists():
        pytest.skip("CRIU is not there: packaging/criu/fetch fetches it")
    variables = {"SANDCOVE_CRIU": str(criu), "SANDCOVE_PARK_AFTER": "never"}
    server.stop()
    server.variables |= variables
    server.start()
    yield
    server.stop()
    for name in variables:
        server.variables.pop(name)
    server.start()


def test_a_database_a_jvm_node_and_a_browser_go_on_after_their_memory_was_on_disk(server, parked_by_hand, installed):
    def answers(command):
        """What a program answers, once it does."""
        answer = []

        def answered():
            with contextlib.suppress(CommandExitException):
                answer.append(run(installed, command))
            return answer

        wait_until(answered, what=command)
        return answer[0]

    def start(command, user="user"):
        run(installed, f"(setsid {command} </dev/null >/dev/null 2>&1 &)", user)

    for path, text in FILES.items():
        installed.files.write(path, text)
    cluster = "B=$(ls -d /usr/lib/postgresql/*/bin); $B/initdb -D /tmp/database/data && $B/pg_ctl -w -D /tmp/database/data -l /tmp/database/log"
    run(installed, f"install -d -m 755 -o postgres /tmp/database && su postgres -c '{cluster} -o \"-k /tmp/database -p 5433\" start'", "root")
    # A session in the middle of a transaction, which a terminal feeds.
    run(installed, "mkfifo /tmp/questions")
    start("sh -c 'exec sleep infinity >/tmp/questions'")
    start(f"sh -c '{PSQL} </tmp/questions >/tmp/answers 2>&1'")
    run(installed, "echo 'create temp table t as select generate_series(1, 1000) n; begin; insert into t values (5000);' >/tmp/questions")
    run(installed, "javac /tmp/Count.java")
    start("java -cp /tmp Count")
    start("node /tmp/answer.js")
    start("chromium --headless --no-sandbox --disable-gpu --remote-debugging-port=9222 --user-data-dir=/tmp/profile file:///tmp/site/page.html")
    java, node, page = "cat </dev/tcp/127.0.0.1/7001", "curl -sf http://127.0.0.1:7002", "node --experimental-websocket /tmp/ask.mjs"
    assert answers(f"bash -c '{java}'") == "1 588890 true\n"
    assert answers(node) == "1 50000 undefined\n"
    count, secret = answers(page).split()
    wait_until(lambda: "INSERT" in run(installed, "cat /tmp/answers"), what="the transaction")

    installed.pause()
    url = f"{server.url}/sandboxes/{installed.sandbox_id}/park"
    parked = requests.post(url, headers={"X-API-KEY": API_KEY}, timeout=600)
    assert parked.status_code == 204, parked.text
    installed.connect(timeout=7200)

    run(installed, "echo 'select sum(n) from t; rollback; select sum(n) from t;' >/tmp/questions")
    wait_until(lambda: run(installed, "cat /tmp/answers").endswith("505500\nROLLBACK\n500500\n"), what="the end of the transaction")
    assert run(installed, f"{PSQL} -c 'select 6 * 7'") == "42\n"
    assert run(installed, f"bash -c '{java}'") == "2 588890 true\n"
    assert run(installed, node) == "2 50000 undefined\n"
    run(installed, "touch /tmp/site/new")
    wait_until(lambda: run(installed, node).endswith(" 50001 new\n"), what="a change that Node sees")
    later, same = run(installed, page).split()
    assert int(later) >= int(count) and same == secret
    wait_until(lambda: int(run(installed, page).split()[0]) > int(later), what="the page to count on")
