"""Parts of nodes: sockets within one process, epoll and its companions."""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct

from parts_files import check, digest, libc

# Options that are compared, of sockets of all kinds.
COMMON = ["SO_REUSEADDR", "SO_REUSEPORT", "SO_KEEPALIVE", "SO_BROADCAST", "SO_LINGER", "SO_RCVTIMEO", "SO_SNDTIMEO", "SO_PASSCRED",
          "SO_RCVLOWAT", "SO_PRIORITY", "SO_OOBINLINE", "SO_DONTROUTE", "SO_TIMESTAMP"]  # fmt: skip
NUMBERS = {"SO_PASSCRED": 16, "SO_TIMESTAMP": 29, "SO_PRIORITY": 12}
SETTABLE = [
    (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_BROADCAST, 1),
    (socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 77, 0)),
    (socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 0, 500_000)),
    (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 9)),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000),
    (socket.SOL_SOCKET, 12, 4),
]
INET = [
    (socket.IPPROTO_IP, socket.IP_TTL, 33),
    (socket.IPPROTO_IP, socket.IP_TOS, 0x10),
    (socket.IPPROTO_IP, 8, 1),
    (socket.IPPROTO_IP, 10, 2),
    (socket.IPPROTO_IP, 11, 1),
    (socket.IPPROTO_IP, 21, 3),
]
TCP = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 55),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 6),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 7000),
    (socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 3),
    (socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5),
    (socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000),
    (socket.IPPROTO_TCP, socket.TCP_SYNCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_LINGER2, 9),
    (socket.IPPROTO_TCP, 25, 4096),
]
# Of datagrams, beside those of IP.
DATAGRAM = [
    (socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4),
    (socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0),
    (socket.IPPROTO_IP, 49, 0),
    (socket.IPPROTO_IP, socket.IP_RECVTOS, 1),
    (socket.SOL_SOCKET, 29, 1),
    (socket.SOL_SOCKET, 40, 1),
    (socket.IPPROTO_UDP, 104, 1),
]


def options(one, more=()):
    got = {}
    for name in COMMON:
        number = getattr(socket, name, NUMBERS.get(name))
        try:
            got[name] = one.getsockopt(socket.SOL_SOCKET, number, 16).hex()
        except OSError:
            pass
    for level, number, _ in more:
        try:
            got[f"{level}:{number}"] = one.getsockopt(level, number)
        except OSError:
            pass
    # The kernel doubles what it is asked for; a restore may ask for more.
    for number in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        got[str(number)] = one.getsockopt(socket.SOL_SOCKET, number)
    return got


def set_some(one, rng, choices):
    for choice in rng.sample(choices, rng.randint(0, 3)):
        try:
            one.setsockopt(*choice)
        except OSError:
            pass


class Listener:
    """A TCP socket that listens, or is only bound, with options."""

    def __init__(self, place, rng):
        family, address = rng.choice([(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
        self.socket = socket.socket(family)
        set_some(self.socket, rng, SETTABLE)
        set_some(self.socket, rng, TCP)
        if family == socket.AF_INET:
            set_some(self.socket, rng, INET)
        elif rng.random() < 0.5:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.bind((address, 0))
        self.listens = rng.random() < 0.7
        if self.listens:
            self.socket.listen(rng.randint(1, 50))

    def state(self):
        more = TCP + INET + [(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)]
        return [self.socket.getsockname(), options(self.socket, more)]

    def use(self):
        if not self.listens:
            self.socket.listen(1)
        port = self.socket.getsockname()[1]
        address = "::1" if self.socket.family == socket.AF_INET6 else "127.0.0.1"
        client = socket.create_connection((address, port), timeout=20)
        # One that is deferred comes when there are data, or at last after a second attempt.
        client.sendall(b"hello")
        self.socket.settimeout(20)
        peer, _ = self.socket.accept()
        assert peer.recv(9) == b"hello"


class Waiting:
    """A listener with a connection that nobody has accepted."""

    def __init__(self, place, rng):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.client = socket.create_connection(self.listener.getsockname())
        self.client.sendall(b"early")

    def use(self):
        self.listener.settimeout(10)
        peer, _ = self.listener.accept()
        assert peer.recv(9) == b"early"
        peer.sendall(b"answer")
        self.client.settimeout(10)
        assert self.client.recv(9) == b"answer"


class Closed:
    """TCP connections whose other end is closed, with data left in one."""

    def __init__(self, place, rng):
        listener = socket.create_server(("127.0.0.1", 0))
        self.clients = []
        for data in (b"", b"last words"):
            client = socket.create_connection(listener.getsockname())
            peer, _ = listener.accept()
            peer.sendall(data)
            peer.close()
            self.clients.append((client, data))

    def use(self):
        for client, data in self.clients:
            client.settimeout(20)
            received = b""
            while chunk := client.recv(99):
                received += chunk
            assert received == data, received


class Datagrams:
    """UDP sockets with options, connected and not."""

    def __init__(self, place, rng):
        self.one, self.two = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
        for one in (self.one, self.two):
            set_some(one, rng, SETTABLE)
            set_some(one, rng, INET)
            set_some(one, rng, DATAGRAM)
        self.one.bind(("127.0.0.1", 0))
        self.two.bind(("127.0.0.1", 0))
        self.two.connect(self.one.getsockname())

    def state(self):
        return [[one.getsockname(), options(one, INET + DATAGRAM)] for one in (self.one, self.two)]

    def use(self):
        self.one.settimeout(5)
        self.two.send(b"after")
        assert self.one.recv(999) == b"after", "a datagram differs"


class Unread:
    """A datagram that nobody has read."""

    def __init__(self, place, rng):
        self.socket = socket.socket(rng.choice([socket.AF_INET, socket.AF_INET6]), socket.SOCK_DGRAM)
        self.socket.bind(("localhost", 0))
        self.data = rng.randbytes(rng.randint(0, 500))
        self.socket.sendto(self.data, self.socket.getsockname())

    def use(self):
        self.socket.settimeout(5)
        assert self.socket.recv(999) == self.data


class Multicast:
    """A UDP socket in a group."""

    def __init__(self, place, rng):
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.bind(("", 0))
        member = socket.inet_aton("239.1.2.3") + socket.inet_aton("127.0.0.1")
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

    def use(self):
        sender = socket.socket(type=socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.sendto(b"to all", ("239.1.2.3", self.socket.getsockname()[1]))
        self.socket.settimeout(5)
        assert self.socket.recv(99) == b"to all"


class Unix:
    """Unix sockets with names, connections and datagrams that nobody has read or accepted."""

    def __init__(self, place, rng):
        self.server = socket.socket(socket.AF_UNIX)
        self.name = rng.choice([place + "/s", "\0" + place])[:100]
        self.server.bind(self.name)
        self.server.listen(rng.randint(1, 9))
        self.client = socket.socket(socket.AF_UNIX)
        self.client.connect(self.name)
        self.peer, _ = self.server.accept()
        self.data = rng.randbytes(rng.randint(0, 5000))
        self.client.sendall(self.data)
        self.is_deleted = self.name[0] == "/" and rng.random() < 0.3
        if self.is_deleted:
            os.unlink(self.name)
        self.receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.receiver.bind("\0r" + place[:90])
        self.sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.has_sender = rng.random() < 0.5
        if self.has_sender:
            self.sender.bind("\0t" + place[:90])
        self.sender.connect("\0r" + place[:90])
        self.messages = [rng.randbytes(rng.randint(1, 300)) for _ in range(rng.randint(0, 3))]
        for message in self.messages:
            self.sender.send(message)
        for one in (self.server, self.client, self.receiver):
            set_some(one, rng, [*SETTABLE[3:5], SETTABLE[6], SETTABLE[7]])
        if rng.random() < 0.05 or not self.messages:
            # Messages that were not received have credentials from then on.
            self.receiver.setsockopt(socket.SOL_SOCKET, 16, 1)

    def state(self):
        # An accepted connection has no name of its own afterwards: docs/decisions/0025.
        names = [repr(one.getsockname()) for one in (self.server, self.receiver, self.sender)]
        return [names, digest(self.peer.recv(9999, socket.MSG_PEEK | socket.MSG_DONTWAIT) if self.data else b""),
                [options(one) for one in (self.server, self.client, self.receiver)]]  # fmt: skip

    def use(self):
        self.peer.settimeout(20)
        received = b""
        while len(received) < len(self.data):
            received += self.peer.recv(9999)
        assert received == self.data
        self.receiver.settimeout(10)
        for message in self.messages:
            data, sender = self.receiver.recvfrom(999)
            assert data == message, "a datagram differs"
            assert not self.has_sender or sender == b"\0t" + self.name_of_place(), f"a datagram is from {sender}"
        if not self.is_deleted:
            again = socket.socket(socket.AF_UNIX)
            again.connect(self.name)
            self.server.settimeout(20)
            self.server.accept()[0].close()

    def name_of_place(self):
        return self.receiver.getsockname()[2:]


class UnixWaiting:
    """A unix socket with a connection that nobody has accepted."""

    def __init__(self, place, rng):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind("\0w" + place[:90])
        self.server.listen(3)
        self.client = socket.socket(socket.AF_UNIX)
        self.client.connect("\0w" + place[:90])
        self.has_data = rng.random() < 0.1
        if self.has_data:
            self.client.sendall(b"early")

    def use(self):
        self.server.settimeout(10)
        peer, _ = self.server.accept()
        peer.settimeout(10)
        assert not self.has_data or peer.recv(9) == b"early"
        peer.sendall(b"answer")
        self.client.settimeout(10)
        assert self.client.recv(9) == b"answer"


class Epoll:
    """An epoll set with an event counter, a signal descriptor, a timer, a pipe, a nested set; some of them ready, one switched off."""

    def __init__(self, place, rng):
        self.epoll, self.inner = select.epoll(), select.epoll()
        self.count = rng.choice([0, rng.randint(1, 9)])
        self.event = check(libc.eventfd(self.count, rng.choice([0, 1, os.O_NONBLOCK])))
        self.once = check(libc.eventfd(1, 0))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
        self.signals = check(libc.signalfd(-1, struct.pack("Q", 1 << (signal.SIGWINCH - 1)) + bytes(120), os.O_NONBLOCK))
        self.has_signal = rng.random() < 0.5
        if self.has_signal:
            os.kill(os.getpid(), signal.SIGWINCH)
        self.pipe = os.pipe()
        if rng.random() < 0.5:
            os.write(self.pipe[1], b"x")
        self.epoll.register(self.event, select.EPOLLIN)
        self.epoll.register(self.signals, select.EPOLLIN | select.EPOLLOUT)
        self.inner.register(self.pipe[0], select.EPOLLIN)
        self.epoll.register(self.inner.fileno(), select.EPOLLIN)
        # It has fired, and is off until it is set again.
        self.epoll.register(self.once, select.EPOLLIN | select.EPOLLONESHOT)
        self.epoll.poll(0)

    def state(self):
        return sorted(self.epoll.poll(0)), sorted(self.inner.poll(0))

    def use(self):
        self.epoll.modify(self.once, select.EPOLLIN)
        assert (self.once, select.EPOLLIN) in self.epoll.poll(0)
        if self.has_signal:
            assert struct.unpack_from("I", os.read(self.signals, 128))[0] == signal.SIGWINCH


class PidFd:
    """Descriptors of a child that lives, and of one that has ended."""

    def __init__(self, place, rng):
        self.child = os.fork()
        if self.child == 0:
            while True:
                signal.pause()
        self.fd = os.pidfd_open(self.child)

    def use(self):
        assert not select.select([self.fd], [], [], 0)[0]
        signal.pidfd_send_signal(self.fd, signal.SIGKILL)
        assert os.waitid(os.P_PIDFD, self.fd, os.WEXITED).si_status == signal.SIGKILL


class Watch:
    """Watches of inotify: of a directory, of one in memory, of a file and of one of the template; the numbers have a gap."""

    def __init__(self, place, rng):
        name = f"watched-{rng.getrandbits(64)}"
        self.place, self.memory = f"{place}/{name}", f"/dev/shm/{name}"
        self.fd = check(libc.inotify_init())
        os.mkdir(self.memory)
        os.mkdir(self.place)
        with open(self.place + "/file", "w"):
            pass
        first = check(libc.inotify_add_watch(self.fd, b"/", 0x100))
        self.directory, self.shared, self.file, _ = (
            check(libc.inotify_add_watch(self.fd, path.encode(), events))
            for path, events in [(self.place, 0x100), (self.memory, 0x300), (self.place + "/file", 0x2), ("/etc/hosts", 0x2)]
        )
        check(libc.inotify_rm_watch(self.fd, first))
        os.read(self.fd, 999)

    def state(self):
        with open(f"/proc/self/fdinfo/{self.fd}") as file:
            lines = [line.split() for line in file if line.startswith("inotify")]
        return sorted([line[1], next(field for field in line if field.startswith("mask"))] for line in lines)

    def use(self):
        for number, path in [(self.directory, self.place + "/new"), (self.shared, self.memory + "/new"), (self.file, self.place + "/file")]:
            with open(path, "a") as file:
                file.write("line")
            assert struct.unpack_from("i", os.read(self.fd, 999))[0] == number, path


class MessageQueue:
    """A POSIX message queue."""

    def __init__(self, place, rng):
        self.fd = check(ctypes.CDLL("librt.so.1", use_errno=True).mq_open(place.replace("/", "-").encode().replace(b"-", b"/", 1),
                                                                          os.O_RDWR | os.O_CREAT, 0o600, None))  # fmt: skip
        check(libc.mq_send(self.fd, b"hello", 5, 1))

    def use(self):
        assert libc.mq_receive(self.fd, ctypes.create_string_buffer(8192), 8192, None) == 5


class Netlink:
    """A netlink socket."""

    def __init__(self, place, rng):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self.socket.bind((0, rng.choice([0, 1, 0x10])))

    def use(self):
        self.socket.send(struct.pack("IHHII", 32, 18, 1, 7, 0) + struct.pack("BxHiII", 0, 0, 1, 0, 0))
        self.socket.settimeout(5)
        # What is said to its group may come first.
        for _ in range(20):
            if struct.unpack_from("IHHI", self.socket.recv(65536))[1::2] == (16, 7):
                return
        raise AssertionError("no answer")


class Owner:
    """A pipe and a file that send signals: owner, signal and lease."""

    def __init__(self, place, rng):
        self.pipe = os.pipe()
        self.signal = signal.SIGRTMIN + 8
        signal.pthread_sigmask(signal.SIG_BLOCK, [self.signal])
        fcntl.fcntl(self.pipe[0], fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self.pipe[0], 10, self.signal)
        fcntl.fcntl(self.pipe[0], fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        self.has_lease = rng.random() < 0.3
        if self.has_lease:
            with open(place + "/leased", "w"):
                pass
            self.leased = os.open(place + "/leased", os.O_RDONLY)
            fcntl.fcntl(self.leased, fcntl.F_SETLEASE, fcntl.F_RDLCK)

    def state(self):
        got = [fcntl.fcntl(self.pipe[0], command) for command in (fcntl.F_GETOWN, 11, fcntl.F_GETFL)]
        return [*got, fcntl.fcntl(self.leased, fcntl.F_GETLEASE) if self.has_lease else None]

    def use(self):
        os.write(self.pipe[1], b"x")
        assert signal.sigtimedwait([self.signal], 5), "no signal about the pipe"


KINDS = {
    "listener": Listener,
    "waiting": Waiting,
    "closed": Closed,
    "datagrams": Datagrams,
    "unread": Unread,
    "multicast": Multicast,
    "unix": Unix,
    "unix waiting": UnixWaiting,
    "epoll": Epoll,
    "pidfd": PidFd,
    "watch": Watch,
    "message queue": MessageQueue,
    "netlink": Netlink,
    "owner": Owner,
}
