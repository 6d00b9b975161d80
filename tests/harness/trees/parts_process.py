"""Parts of nodes: threads, timers, signals, children, terminals, and attributes of processes."""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time

from parts_files import check, libc

PR_GET = {"dumpable": 3, "thp": 42, "subreaper": 37, "no new privileges": 39, "timer slack": 30, "death signal": 2}


def monotonic():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Threads:
    """Threads that wait, each with a name and blocked signals of its own."""

    def __init__(self, place, rng):
        self.lock, self.counts, self.wakes = threading.Condition(), [0] * rng.randint(1, 6), 0
        ready = threading.Barrier(len(self.counts) + 1)
        for number, blocked in enumerate(rng.choices([signal.SIGUSR1, signal.SIGWINCH, signal.SIGTERM], k=len(self.counts))):
            threading.Thread(target=self.run, args=(number, blocked, ready), daemon=True).start()
        ready.wait()

    def run(self, number, blocked, ready):
        libc.prctl(15, b"part-%d" % number, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, [blocked])
        ready.wait()
        seen = 0
        while True:
            with self.lock:
                while self.wakes == seen:
                    self.lock.wait()
                seen = self.wakes
                self.counts[number] += 1

    def state(self):
        return [self.counts, len(os.listdir("/proc/self/task"))]

    def use(self):
        with self.lock:
            self.wakes += 1
            self.lock.notify_all()
        end = time.monotonic() + 20
        while self.counts != [self.wakes] * len(self.counts):
            assert time.monotonic() < end, f"threads stand still: {self.counts}"
            time.sleep(0.01)


def call(function, *arguments):
    """Calls the C library, which does not call again what was interrupted, as Python does."""
    return check(function(*arguments))


def poll(fd, timeout):
    return call(libc.poll, struct.pack("ihh", fd, select.POLLIN, 0), 1, timeout)


def receive(one, other):
    return one.recv(1), other


def sleep(clock, has_rest):
    wanted, rest = timespecs(1000.0), ctypes.create_string_buffer(16)
    return call(libc.clock_nanosleep, clock, 0, wanted, rest if has_rest else None)


class Waits:
    """Threads in system calls of every kind, which must neither end nor fail."""

    CALLS = {
        "poll": lambda fds: poll(fds[0], 1_000_000),
        "poll for ever": lambda fds: poll(fds[0], -1),
        "read": lambda fds: os.read(fds[0], 1),
        "sleep": lambda fds: time.sleep(1_000),
        "sleep with rest": lambda fds: sleep(1, True),
        "sleep without rest": lambda fds: sleep(0, False),
        "epoll": lambda fds: select.epoll().poll(1_000),
        "select": lambda fds: select.select([fds[0]], [], [], 1_000),
        "futex": lambda fds: threading.Event().wait(1_000),
        "child": lambda fds: os.waitpid(fds[2], 0),
        "accept": lambda fds: socket.create_server(("127.0.0.1", 0)).accept(),
        "receive": lambda fds: receive(*socket.socketpair()),
        "lock": lambda fds: fcntl.flock(os.open(fds[3], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX),
        "signal": lambda fds: signal.sigtimedwait([signal.SIGTTOU], 1_000),
    }

    def __init__(self, place, rng):
        child, locked = os.fork(), place + "/locked"
        if child == 0:
            while True:
                signal.pause()
        self.lock = os.open(locked, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.ended, self.fds = {}, (*os.pipe(), child, locked)
        self.names = rng.sample(sorted(self.CALLS), rng.randint(1, 4))
        for name in self.names:
            threading.Thread(target=self.run, args=(name,), daemon=True).start()
        time.sleep(0.02)

    def run(self, name):
        # A signal for the process would interrupt these calls anyway.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.ended[name] = repr(self.CALLS[name](self.fds))
        except Exception as error:
            self.ended[name] = repr(error)

    def state(self):
        return dict(self.ended)

    def use(self):
        time.sleep(0.05)
        assert not self.ended, f"calls ended: {self.ended}"


class Timers:
    """Timers of all kinds: what is left of them, whether they are set, and expirations that nobody has read."""

    def __init__(self, place, rng):
        self.fds = []
        for clock in rng.choices([0, 1, 7], k=rng.randint(1, 4)):
            fd = check(libc.timerfd_create(clock, rng.choice([0, os.O_NONBLOCK])))
            left, interval = rng.choice([(0.0, 0.0), (0.01, 0.0), (500.0, 0.0), (500.0, 30.0), (0.01, 700.0)])
            check(libc.timerfd_settime(fd, 0, timespecs(interval, left), None))
            self.fds.append((fd, left, interval))
        self.posix = []
        for clock, value in rng.choices([(0, 7), (1, 8), (1, 9)], k=rng.randint(0, 3)):
            signal.signal(signal.SIGRTMIN + 3, lambda *_: None)
            timer = ctypes.c_void_p()
            event = struct.pack("qii", value, signal.SIGRTMIN + 3, 0) + bytes(48)
            check(libc.timer_create(clock, event, ctypes.byref(timer)))
            check(libc.timer_settime(timer, 0, timespecs(rng.choice([0.0, 40.0]), 600.0), None))
            self.posix.append(timer)
        self.has_alarm = rng.random() < 0.4
        if self.has_alarm:
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 900, rng.choice([0, 20]))
        time.sleep(0.03)

    def state(self):
        now, wall = monotonic(), time.time()
        state = {"fds": [], "posix": []}
        for fd, left, _ in self.fds:
            buffer = ctypes.create_string_buffer(32)
            check(libc.timerfd_gettime(fd, buffer))
            interval, remaining = seconds(buffer.raw)
            state["fds"].append([interval, left == 0 or remaining > 0, bool(select.select([fd], [], [], 0)[0])])
            if remaining:
                state[f"deadline {fd}~"] = now + remaining
        for number, timer in enumerate(self.posix):
            buffer = ctypes.create_string_buffer(32)
            check(libc.timer_gettime(timer, buffer))
            interval, remaining = seconds(buffer.raw)
            state["posix"].append([interval, remaining > 0])
            state[f"posix {number}~"] = now + remaining
        if self.has_alarm:
            remaining, state["alarm"] = signal.getitimer(signal.ITIMER_REAL)
            state["alarm~"] = now + remaining
        assert wall > 0
        return state

    def use(self):
        for fd, left, interval in self.fds:
            if left == 0.01:
                assert os.read(fd, 8) == struct.pack("Q", 1), "another number of expirations"


def timespecs(*values):
    return b"".join(struct.pack("qq", int(value), round(value % 1 * 1e9)) for value in values)


def seconds(raw):
    a, b, c, d = struct.unpack("4q", raw)
    return a + b / 1e9, c + d / 1e9


class Ticks:
    """A timer that goes on ticking: its signal handler counts."""

    def __init__(self, place, rng):
        self.count = 0
        signal.signal(signal.SIGVTALRM, self.tick)
        timer = ctypes.c_void_p()
        check(libc.timer_create(1, struct.pack("qii", 0, signal.SIGVTALRM, 0) + bytes(48), ctypes.byref(timer)))
        check(libc.timer_settime(timer, 0, timespecs(0.05, 0.05), None))

    def tick(self, *_):
        self.count += 1

    def use(self):
        before, end = self.count, time.monotonic() + 20
        assert before > 0
        while self.count < before + 3:
            assert time.monotonic() < end, "the timer stands still"
            time.sleep(0.01)


class Signals:
    """Signals that are pending, with the values that they were sent with, in order; one that only a thread has."""

    def __init__(self, place, rng):
        self.numbers = [signal.SIGUSR2, signal.SIGRTMIN + 5, signal.SIGRTMIN + 6]
        signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        self.sent = [(signal.SIGRTMIN + rng.choice([5, 6]), rng.randint(1, 1 << 30)) for _ in range(rng.randint(0, 6))]
        for number, value in self.sent:
            check(libc.sigqueue(os.getpid(), number, ctypes.c_void_p(value)))
        self.plain = rng.random() < 0.5
        if self.plain:
            os.kill(os.getpid(), signal.SIGUSR2)
        self.own = rng.random() < 0.5
        if self.own:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU])
            signal.pthread_kill(threading.get_ident(), signal.SIGXCPU)
        self.ignored = rng.choice([signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT])
        signal.signal(self.ignored, signal.SIG_IGN)

    def state(self):
        return [sorted(map(int, signal.sigpending())), sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))]

    def use(self):
        for number, value in sorted(self.sent, key=lambda pair: pair[0]):
            got = ctypes.create_string_buffer(128)
            mask = struct.pack("Q", 1 << (number - 1)) + bytes(120)
            assert libc.sigtimedwait(mask, got, timespecs(5.0)) == number, f"signal {number} is gone"
            _, _, code = struct.unpack_from("iii", got.raw)
            pid, _, found = struct.unpack_from("iIi", got.raw, 16)
            assert (code, pid, found) == (-1, os.getpid(), value), f"signal {number} has {(code, pid, found)}, not {value}"
        if self.plain:
            assert signal.sigtimedwait([signal.SIGUSR2], 5).si_pid == os.getpid()


class Dead:
    """Children that have ended and were not waited for."""

    def __init__(self, place, rng):
        self.children = {}
        for _ in range(rng.randint(1, 3)):
            code, by_signal = rng.randint(0, 127 if rng.random() < 0.98 else 255), rng.choice([0, 0, signal.SIGKILL, signal.SIGTERM])
            pid = os.fork()
            if pid == 0:
                if by_signal:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    os.kill(os.getpid(), by_signal)
                os._exit(code)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            self.children[pid] = by_signal or code << 8

    def state(self):
        found = {}
        for pid in self.children:
            info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            found[pid] = [info.si_code, info.si_status] if info else None
        return found

    def use(self):
        for pid, status in self.children.items():
            assert os.waitpid(pid, 0) == (pid, status), "another exit status"


class Stopped:
    """A child that is stopped."""

    def __init__(self, place, rng):
        self.child = os.fork()
        if self.child == 0:
            while True:
                signal.pause()
        # The kernel ignores SIGTSTP in a group whose parents are in other sessions.
        os.kill(self.child, signal.SIGSTOP)
        os.waitpid(self.child, os.WUNTRACED)

    def state(self):
        with open(f"/proc/{self.child}/stat") as stat:
            return stat.read().rsplit(") ", 1)[1][0]

    def use(self):
        os.kill(self.child, signal.SIGCONT)
        assert os.WIFCONTINUED(os.waitpid(self.child, os.WCONTINUED)[1])


class Terminal:
    """A terminal with settings, a size, unread output and input that nobody has read; its shell goes on counting."""

    def __init__(self, place, rng):
        import pty
        import termios

        self.termios = termios
        self.child, self.master = pty.fork()
        if self.child == 0:
            os.execv("/bin/sh", ["sh", "-c", "stty -echo; echo ready; i=0; while read line; do i=$((i+1)); echo \"$i $line\"; done"])
        self.read_until(b"ready")
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rng.randint(10, 90), rng.randint(10, 200), 0, 0))
        os.write(self.master, b"first\n")
        self.second, self.slave = pty.openpty()
        settings = termios.tcgetattr(self.slave)
        settings[3] &= ~rng.choice([termios.ECHO, termios.ICANON, termios.ISIG])
        settings[6][termios.VMIN] = rng.choice([b"\1", b"\3"])
        termios.tcsetattr(self.slave, termios.TCSANOW, settings)
        if rng.random() < 0.5:
            os.write(self.slave, b"output that\nnobody has read\n")
        self.has_input = rng.random() < 0.05
        if self.has_input:
            os.write(self.second, b"a whole line\n")
        time.sleep(0.1)

    def read_until(self, text):
        data, end = b"", time.monotonic() + 20
        while text not in data:
            assert select.select([self.master], [], [], 20)[0] and time.monotonic() < end, f"no {text} in {data}"
            data += os.read(self.master, 999)
        return data

    def state(self):
        size = struct.unpack("4H", fcntl.ioctl(self.master, self.termios.TIOCGWINSZ, bytes(8)))
        settings = [repr(self.termios.tcgetattr(fd)) for fd in (self.master, self.slave)]
        waiting = [struct.unpack("i", fcntl.ioctl(fd, 0x541B, b"    "))[0] for fd in (self.master, self.second, self.slave)]
        return [size, settings, waiting, os.tcgetpgrp(self.master) == self.child]

    def use(self):
        self.read_until(b"1 first")
        os.write(self.master, b"second\n")
        self.read_until(b"2 second")
        if self.has_input:
            assert os.read(self.slave, 99) == b"a whole line\n", "input of the terminal differs"


class Attributes:
    """Settings of a process that `prctl` and others change."""

    def __init__(self, place, rng):
        choices = [
            lambda: libc.prctl(36, 1, 0, 0, 0),
            lambda: libc.prctl(29, 123_456, 0, 0, 0),
            lambda: libc.prctl(4, 0, 0, 0, 0),
            lambda: libc.prctl(1, int(signal.SIGURG), 0, 0, 0),
            lambda: libc.prctl(41, 1, 0, 0, 0),
            lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
            lambda: os.sched_setscheduler(0, rng.choice([os.SCHED_BATCH, os.SCHED_IDLE]), os.sched_param(0)),
            lambda: check(libc.syscall(251, 1, 0, rng.choice([(2 << 13) | 6, 3 << 13]))),
            lambda: self.write("/proc/self/oom_score_adj", "500"),
            lambda: self.write("/proc/self/coredump_filter", "0x11"),
        ]
        for choice in rng.sample(choices, rng.randint(1, 5)):
            choice()
        import resource

        self.resource = resource
        resource.setrlimit(resource.RLIMIT_STACK, (rng.randint(3, 7) << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000 + rng.randint(0, 20), 1024))

    def write(self, path, text):
        with open(path, "w") as file:
            file.write(text)

    def state(self):
        got = {}
        for name, number in PR_GET.items():
            value = ctypes.c_int()
            reads_back = name in ("subreaper", "death signal")
            result = libc.prctl(number, ctypes.byref(value) if reads_back else 0, 0, 0, 0)
            got[name] = value.value if reads_back else result
        got["personality"] = libc.personality(0xFFFFFFFF)
        got["affinity"] = sorted(os.sched_getaffinity(0))
        got["policy"] = os.sched_getscheduler(0)
        got["io priority"] = libc.syscall(252, 1, 0)
        got["limits"] = [self.resource.getrlimit(kind) for kind in (3, 7)]
        for name in ("oom_score_adj", "coredump_filter"):
            with open(f"/proc/self/{name}") as file:
                got[name] = file.read().strip()
        return got


class Personality:
    """A process with a personality that is not the default."""

    def __init__(self, place, rng):
        check(libc.personality(0x0040000))

    def state(self):
        return libc.personality(0xFFFFFFFF)


class Restricted:
    """A child with a filter of system calls of its own."""

    def __init__(self, place, rng):
        self.ask, self.answer = os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            # mkdir (83) fails with EXDEV, all else is allowed.
            code = [(0x20, 0, 0, 0), (0x15, 0, 1, 83), (6, 0, 0, 0x50000 + 18), (6, 0, 0, 0x7FFF0000)]
            program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
            fprog = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program))
            check(libc.prctl(38, 1, 0, 0, 0))
            check(libc.prctl(22, 2, fprog, 0, 0))
            while os.read(self.ask[0], 1):
                result = libc.syscall(83, place.encode() + b"/made", 0o755)
                os.write(self.answer[1], struct.pack("ii", result, ctypes.get_errno()))
            os._exit(0)

    def use(self):
        os.write(self.ask[1], b"x")
        assert struct.unpack("ii", os.read(self.answer[0], 8)) == (-1, 18), "the filter is gone"


KINDS = {
    "threads": Threads,
    "waits": Waits,
    "timers": Timers,
    "ticks": Ticks,
    "signals": Signals,
    "dead": Dead,
    "stopped": Stopped,
    "terminal": Terminal,
    "attributes": Attributes,
    "personality": Personality,
    "restricted": Restricted,
}
