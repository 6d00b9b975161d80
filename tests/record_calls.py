#!/usr/bin/env python3
"""Records which system calls programs make in a sandbox, for `crates/isolate/src/jail/seccomp/recorded.txt`.

    eval "$(sandcove env)"; python tests/record_calls.py [PROGRAM ...] > recorded.txt

Each program runs under strace in one sandbox of the code interpreter's template, with what it needs installed from Debian. Calls that the
sandbox does not have (ENOSYS) are left out. With names of programs only these run, and what they make is added to the present file.
"""

import sys
from collections import defaultdict
from pathlib import Path

from e2b import CommandExitException
from e2b_code_interpreter import Sandbox

RECORDED = Path(__file__).resolve().parents[1] / "crates/isolate/src/jail/seccomp/recorded.txt"
HEADER = """\
# System calls, and programs that make them in a sandbox. Recorded by tests/record_calls.py.
"""

PYTHON_FILES = """
import mmap, os, tempfile, select, signal, socket, threading, subprocess, time, multiprocessing, asyncio, sqlite3, resource, fcntl
os.chdir(tempfile.mkdtemp())
with open("a", "wb") as a: a.write(b"x" * 100000); a.truncate(50000); os.fsync(a); os.fdatasync(a); os.posix_fallocate(a.fileno(), 0, 9000); os.posix_fadvise(a.fileno(), 0, 0, 2)
with open("a", "rb") as a, open("b", "wb") as b:
    os.sendfile(b.fileno(), a.fileno(), 0, 1000); os.copy_file_range(a.fileno(), b.fileno(), 1000)
    os.preadv(a.fileno(), [bytearray(10)], 0); os.preadv(a.fileno(), [bytearray(10)], 0, os.RWF_HIPRI); os.pwritev(b.fileno(), [b"x"], 0); os.pwritev(b.fileno(), [b"x"], 0, os.RWF_DSYNC)
    os.readv(a.fileno(), [bytearray(10)]); os.writev(b.fileno(), [b"y"]); os.pread(a.fileno(), 1, 0); os.pwrite(b.fileno(), b"x", 0)
    r, w = os.pipe(); os.splice(a.fileno(), w, 100, offset_src=0); fcntl.flock(a, fcntl.LOCK_EX); fcntl.lockf(b, fcntl.LOCK_EX)
    os.dup(r); os.dup2(r, 50)
os.truncate("a", 10); os.link("a", "c"); os.symlink("a", "d"); os.readlink("d"); os.rename("c", "e"); os.mkfifo("f"); os.utime("a"); os.chmod("a", 0o600)
os.setxattr("a", "user.x", b"1"); os.getxattr("a", "user.x"); os.listxattr("a"); os.removexattr("a", "user.x"); os.statvfs("."); os.access("a", os.R_OK); os.access("a", os.R_OK, effective_ids=True)
os.setxattr("d", "user.x", b"1", follow_symlinks=True); os.listxattr("d", follow_symlinks=False); os.lchown("d", -1, -1); os.chown("a", -1, -1)
os.unlink("d"); os.mkdir("g"); os.rmdir("g"); os.sync; os.memfd_create("m"); os.eventfd(0); os.getrandom(4); os.nice(0); os.getloadavg()
at = os.open(".", os.O_RDONLY); os.fchdir(at); os.chmod("a", 0o644, dir_fd=at); os.link("a", "h", src_dir_fd=at, dst_dir_fd=at); os.symlink("a", "i", dir_fd=at); os.unlink("i", dir_fd=at); os.rename("h", "j", src_dir_fd=at, dst_dir_fd=at); os.mkdir("k", dir_fd=at); os.readlink("/proc/self/exe", dir_fd=at); os.stat("a", dir_fd=at)
m = mmap.mmap(-1, 1 << 20); m.madvise(mmap.MADV_DONTNEED); m.flush(); m.resize(1 << 21) if hasattr(m, "resize") else None
os.sched_getaffinity(0); os.sched_setaffinity(0, os.sched_getaffinity(0)); os.sched_yield(); os.sched_getscheduler(0); os.sched_getparam(0); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); os.sched_setparam(0, os.sched_param(0)); os.sched_rr_get_interval(0); os.sched_get_priority_max(0); os.sched_get_priority_min(0); os.getpriority(0, 0); os.setpriority(0, 0, 0)
os.getpgid(0); os.getpgrp(); os.getsid(0); os.getresuid(); os.getresgid(); os.getgroups(); os.times(); os.uname(); resource.getrusage(0); resource.getrlimit(7); resource.setrlimit(7, resource.getrlimit(7))
time.clock_gettime(7); time.clock_getres(1); time.sleep(0.001); signal.setitimer(signal.ITIMER_REAL, 10); signal.getitimer(signal.ITIMER_REAL); signal.alarm(0)
signal.pthread_sigmask(signal.SIG_BLOCK, {10}); os.kill(os.getpid(), 10); signal.sigpending(); signal.sigtimedwait([10], 1); signal.pthread_kill(threading.get_ident(), 0); signal.raise_signal(0)
pid = os.fork()
if pid == 0: os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED)
pid = os.fork()
if pid == 0: signal.pause()
at = os.pidfd_open(pid); time.sleep(0.2); signal.pidfd_send_signal(at, 9); os.waitpid(pid, 0)
select.select([], [], [], 0); p = select.poll(); p.poll(0); e = select.epoll(); e.poll(0)
a, b = socket.socketpair(); a.sendmsg([b"x"]); b.recvmsg(10); a.shutdown(1); a.getsockname(); a.getpeername; a.getsockopt(1, 4)
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); s.accept()[0].send(b"x"); c.recv(1); c.setsockopt(6, 1, 1)
socket.getaddrinfo("localhost", 80); socket.if_nameindex(); subprocess.run(["true"]); subprocess.run("true", shell=True, start_new_session=True, process_group=None)
with multiprocessing.Pool(2) as pool: pool.map(abs, range(4))
from multiprocessing import shared_memory; shared_memory.SharedMemory(create=True, size=10).unlink()
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname()); await r.read(); w.close()
    await (await asyncio.create_subprocess_exec("true")).wait()
asyncio.run(main())
db = sqlite3.connect("db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(a)"); db.commit()
threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
NUMPY = "import numpy as n; a = n.random.rand(800, 800); [a @ a for _ in range(3)]; n.linalg.svd(a[:100]); n.memmap('/tmp/mm', shape=9, mode='w+').flush()"
NODE = """
const fs = require("fs"), http = require("http"), { Worker } = require("worker_threads"), { execSync, spawn } = require("child_process");
fs.mkdtempSync("/tmp/n"); fs.writeFileSync("/tmp/n.txt", "x"); fs.copyFileSync("/tmp/n.txt", "/tmp/n2.txt"); fs.cpSync("/tmp/n.txt", "/tmp/n3.txt");
const w = fs.watch("/tmp"); fs.readdirSync("/tmp"); fs.statSync("/tmp"); fs.renameSync("/tmp/n2.txt", "/tmp/n4.txt"); fs.truncateSync("/tmp/n4.txt"); fs.fsyncSync(fs.openSync("/tmp/n4.txt", "r+"));
execSync("true"); new Worker("1", { eval: true }); w.close(); require("os").setPriority(0); require("os").networkInterfaces();
require("dns").lookup("localhost", () => 0);
const s = http.createServer((q, r) => { r.end("x"); s.close(); }).listen(0, () => http.get({ port: s.address().port }, r => r.resume()));
"""
CRASH = "int main(void) { int *p = 0; *p = 1; }"
SHELL = """
cd $(mktemp -d); mkdir -p a/b; echo x > a/f; cp -a a c; cp --reflink=auto a/f g; mv c d; ln a/f h; ln -s a l; chmod 700 h; chown root h; touch -d yesterday h; tar czf t.tgz a; tar xzf t.tgz
find . -newer h; sort -u a/f; du -s .; df .; stat .; install -m 755 a/f i; mkfifo p; mknod q p; truncate -s 9 g; split -b 1 g; dd if=/dev/zero of=z bs=1k count=9 conv=fsync; sync z; sync -f z; shred z; fallocate -l 4096 y; flock y true
rsync -a a/ r/; tee w < a/f; (sleep 0.1 & wait); timeout 1 true; nice true; ionice -c 3 true; chrt -b 0 true; taskset 1 true; setsid true; nohup true; env true; stty -a < /dev/null; script -qc true /dev/null; timeout 0.3 tail -f a/f
renice -n 1 $$; getfattr -d h; lsattr .; filefrag h; ipcs; ipcmk -M 1000; ipcmk -S 1; ipcrm -a; chroot / true; su user -c true; sudo -u user sudo true; id; groups; prlimit; ulimit -a; time true; trap "" USR1; kill -0 $$; who; uptime; free; top -bn1; ps aux; lsblk; ip a; ss -ltn; ping -c1 127.0.0.1
rm -rf a; rmdir r 2>/dev/null; umask; pwd; setarch -R true; logger x; gzip g; xz a/f; zstd y; unzip -l t.tgz; zip -q y.zip y; vi -es +q; less a/f < /dev/null; tree; curl -s file:///etc/passwd; wget -q -O- http://127.0.0.1:1; ssh-keygen -qN '' -f k; openssl rand 4; jq . <<< 1; man -V; nproc; date; mount; hostname
"""

# Name, Debian packages that it needs, command, user. Those that trace for themselves are followed by nobody.
PROGRAMS = [
    ("shell", "attr e2fsprogs man-db", SHELL, "root"),
    ("python", "", "python3 /tmp/files.py", "root"),
    ("numpy", "", f'OPENBLAS_NUM_THREADS=8 python3 -c "{NUMPY}"', "user"),
    ("node", "", "node /tmp/node.js; npm --version", "user"),
    ("git", "", "cd $(mktemp -d); git init -q .; git config user.email a@b; git config user.name a; echo x > f; git add f; git commit -qm x; git clone -q . ../$$; git gc -q", "user"),
    ("gcc", "", "cd /tmp; gcc -g -o crash crash.c; make --version", "user"),
    ("apt", "", "apt-get install -qq --yes hello; apt-get remove -qq --yes hello", "root"),
    ("pip", "", "python3 -m venv /tmp/venv; /tmp/venv/bin/pip install -q six", "user"),
    ("gdb", "gdb", "gdb -batch -ex run -ex bt -ex 'info registers' /tmp/crash", "user"),
    ("strace", "", "strace -f -o /tmp/inner sh -c 'true; true'; strace -o /tmp/inner -p $$ & sleep 0.3; kill %1", "user"),
    ("java", "openjdk-21-jre-headless", "java -version; keytool -genkeypair -alias a -keyalg EC -dname CN=a -keystore /tmp/ks -storepass secret", "user"),
    ("postgres", "postgresql", """d=$(mktemp -d); b=$(ls -d /usr/lib/postgresql/*/bin); $b/initdb -D $d; $b/pg_ctl -D $d -o '-k /tmp' -w start; $b/pgbench -h /tmp -i -q postgres; $b/pgbench -h /tmp -c 2 -j 2 -t 20 postgres; $b/pg_ctl -D $d -w -m fast stop""", "postgres"),
    ("chromium", "chromium", "chromium --headless --no-sandbox --disable-gpu --dump-dom about:blank; chromium --headless --disable-gpu --dump-dom 'data:text/html,x'", "user"),
    ("cargo", "cargo", "cd $(mktemp -d); cargo init -q --name a .; cargo build -q", "user"),
]  # fmt: skip
OWN_TRACERS = {"gdb", "strace"}


def calls_in(sandbox, traces):
    """Names of the calls in files of strace, without those that the sandbox does not have."""
    names = f"cat {traces} | grep -v ENOSYS | grep -oE '^([0-9]+ +)?[a-z_0-9]+\\(' | sed -E 's/^[0-9]+ +//; s/\\($//' | sort -u"
    return sandbox.commands.run(names, user="root", timeout=300).stdout.split()


def record(sandbox, name, packages, command, user):
    """The calls that a program makes."""
    if packages:
        sandbox.commands.run(f"apt-get install -qq --yes --no-install-recommends {packages} >/dev/null 2>&1", user="root", timeout=900)
    sandbox.files.write("/tmp/command.sh", command)
    follow = "" if name in OWN_TRACERS else "-f"
    trace = f"strace {follow} -qq -o /tmp/trace.{name} bash /tmp/command.sh"
    run = trace if user in ("root", "user") else f"su {user} -s /bin/bash -c '{trace}'"
    if name in OWN_TRACERS:
        # The program itself, and not the shell around it.
        sandbox.files.write("/tmp/command.sh", command.replace(name, f"strace -qq -o /tmp/trace.{name}.$RANDOM {name}", 1))
        run = "bash /tmp/command.sh"
    try:
        sandbox.commands.run(f"{run} >/tmp/said.{name} 2>&1", user=user if user in ("root", "user") else "root", timeout=900)
    except CommandExitException as error:
        print(f"{name}: exit status {error.exit_code}", file=sys.stderr)
    return calls_in(sandbox, f"/tmp/trace.{name}*")


def own_programs(sandbox):
    """The calls of the agent and the interpreter at work."""
    tracer = sandbox.commands.run(
        "strace -f -qq -o /tmp/trace.sandcove $(pgrep -x 'sandcove-.*' | sed 's/^/-p /')", user="root", background=True, timeout=60
    )
    sandbox.commands.run("until [ -s /tmp/trace.sandcove ]; do sleep 0.1; done", timeout=30)
    watch = sandbox.files.watch_dir("/tmp")
    sandbox.files.write("/tmp/by-the-agent", "x")
    sandbox.files.rename("/tmp/by-the-agent", "/tmp/renamed")
    sandbox.files.make_dir("/tmp/made")
    sandbox.files.list("/tmp")
    sandbox.files.remove("/tmp/renamed")
    sandbox.run_code("1", language="bash")
    watch.stop()
    tracer.kill()
    return calls_in(sandbox, "/tmp/trace.sandcove")


def present():
    found = defaultdict(set)
    for line in RECORDED.read_text().splitlines():
        if line and not line.startswith("#"):
            call, programs = line.split(": ")
            found[call] |= set(programs.split())
    return found


def main():
    wanted = set(sys.argv[1:])
    found = present() if wanted else defaultdict(set)
    sandbox = Sandbox.create(timeout=3600)
    try:
        sandbox.commands.run("apt-get -qq update && apt-get install -qq --yes strace >/dev/null 2>&1", user="root", timeout=600)
        sandbox.files.write("/tmp/files.py", PYTHON_FILES)
        sandbox.files.write("/tmp/node.js", NODE)
        sandbox.files.write("/tmp/crash.c", CRASH)
        for name, packages, command, user in [*PROGRAMS, ("sandcove", "", "", "")]:
            if wanted and name not in wanted:
                continue
            try:
                calls = record(sandbox, name, packages, command, user) if command else own_programs(sandbox)
            except Exception as error:  # noqa: BLE001 -- the others are still worth having
                print(f"{name}: {error}", file=sys.stderr)
                continue
            print(f"{name}: {len(calls)} calls", file=sys.stderr)
            for call in calls:
                found[call].add(name)
    finally:
        sandbox.kill()
    print(HEADER + "\n".join(f"{call}: {' '.join(sorted(programs))}" for call, programs in sorted(found.items())))


if __name__ == "__main__":
    main()
