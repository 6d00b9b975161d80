"""What a parent and its child have in common: made before the fork. Both keep their ends; `use` reads what was under way and writes more,
`finish` reads that."""

import array
import ctypes
import fcntl
import mmap
import os
import socket
import struct

from parts_files import check, digest, libc


class Pipes:
    """Two pipes with data in them that nobody has read."""

    flags = 0

    def __init__(self, place, rng):
        self.down, self.up = os.pipe2(self.flags), os.pipe2(self.flags)
        if rng.random() < 0.3:
            fcntl.fcntl(self.down[1], 1031, 1 << 17)
        self.data = [rng.randbytes(rng.randint(0, 4000)) for _ in range(2)]

    def parent(self, pid):
        os.close(self.down[0])
        os.close(self.up[1])
        self.reads, self.writes, self.expected = self.up[0], self.down[1], self.data[1]
        os.write(self.writes, self.data[0])

    def child(self):
        os.close(self.down[1])
        os.close(self.up[0])
        self.reads, self.writes, self.expected = self.down[0], self.up[1], self.data[0]
        os.write(self.writes, self.data[1])

    def state(self):
        waiting = struct.unpack("i", fcntl.ioctl(self.reads, 0x541B, b"    "))[0]
        return [waiting, fcntl.fcntl(self.reads, 1032), fcntl.fcntl(self.reads, fcntl.F_GETFL)]

    def use(self):
        assert not self.expected or read_all(self.reads, len(self.expected)) == self.expected, "data of the pipe differs"
        os.write(self.writes, b"after")

    def finish(self):
        assert os.read(self.reads, 99) == b"after"


def read_all(fd, size):
    data = b""
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        assert chunk, "the other end is gone"
        data += chunk
    return data


class Packets:
    """A pipe in packet mode: each read gets what one write wrote."""

    def __init__(self, place, rng):
        self.fds = os.pipe2(os.O_DIRECT)
        self.packets = [rng.randbytes(rng.randint(1, 500)) for _ in range(rng.randint(1, 5))]

    def parent(self, pid):
        for packet in self.packets:
            os.write(self.fds[1], packet)

    def child(self):
        self.packets = []

    def state(self):
        return [struct.unpack("i", fcntl.ioctl(fd, 0x541B, b"    "))[0] for fd in self.fds] + [fcntl.fcntl(self.fds[0], fcntl.F_GETFL)]

    def use(self):
        for packet in self.packets:
            assert os.read(self.fds[0], 4096) == packet, "the packets of a pipe have other bounds"


class SocketPair:
    """A pair of unix sockets with messages in both queues."""

    def __init__(self, place, rng):
        self.type = rng.choice([socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
        self.pair = socket.socketpair(type=self.type)
        self.messages = [[rng.randbytes(rng.randint(1, 900)) for _ in range(rng.randint(0, 4))] for _ in range(2)]

    def parent(self, pid):
        self.mine, self.expected = self.pair[0], self.messages[1]
        self.pair[1].close()
        self.send(self.messages[0])

    def child(self):
        self.mine, self.expected = self.pair[1], self.messages[0]
        self.pair[0].close()
        self.send(self.messages[1])

    def send(self, messages):
        self.mine.settimeout(20)
        for message in messages:
            self.mine.send(message)

    def state(self):
        return struct.unpack("i", fcntl.ioctl(self.mine, 0x541B, b"    "))[0]

    def use(self):
        if self.type == socket.SOCK_STREAM:
            whole = b"".join(self.expected)
            assert not whole or read_all(self.mine.fileno(), len(whole)) == whole, "data of the socket differs"
        else:
            for message in self.expected:
                assert self.mine.recv(4096) == message, "a message of the socket differs"
        self.mine.send(b"after")

    def finish(self):
        assert self.mine.recv(99) == b"after"


class Passed:
    """A descriptor that lies in the queue of a socket: sent and not received."""

    def __init__(self, place, rng):
        self.pair = socket.socketpair()
        self.content = rng.randbytes(500)
        with open(place + "/sent", "w+b") as file:
            file.write(self.content)
            file.flush()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))]
            self.pair[0].sendmsg([b"here"], rights)

    def parent(self, pid):
        self.pair[1].close()

    def child(self):
        self.pair[0].close()
        self.receives = True

    def state(self):
        return [struct.unpack("i", fcntl.ioctl(one, 0x541B, b"    "))[0] for one in self.pair if one.fileno() >= 0]

    def use(self):
        if hasattr(self, "receives"):
            self.pair[1].settimeout(20)
            data, rights, _, _ = self.pair[1].recvmsg(99, 999)
            assert data == b"here" and rights, "the descriptor is not there"
            (fd,) = array.array("i", rights[0][2][:4])
            assert os.pread(fd, 999, 0) == self.content


class SharedMemory:
    """Anonymous memory, an offset and an event counter that both have."""

    def __init__(self, place, rng):
        self.memory = mmap.mmap(-1, rng.randint(1, 8) << 12)
        self.memory[0:100] = rng.randbytes(100)
        self.file = os.open(place + "/shared", os.O_RDWR | os.O_CREAT)
        os.write(self.file, rng.randbytes(1000))
        self.event = check(libc.eventfd(rng.randint(0, 9), rng.choice([0, 1])))
        self.is_parent = False

    def parent(self, pid):
        self.is_parent = True

    def child(self):
        pass

    def state(self):
        return [digest(self.memory[:]), os.lseek(self.file, 0, 1), self.event_count()]

    def event_count(self):
        with open(f"/proc/self/fdinfo/{self.event}") as info:
            return [line for line in info if line.startswith("eventfd-count")]

    def use(self):
        if self.is_parent:
            self.memory[200:205] = b"after"
            os.lseek(self.file, 77, 0)
            os.write(self.event, struct.pack("Q", 5))

    def finish(self):
        assert self.memory[200:205] == b"after", "the memory is not shared any more"
        assert os.lseek(self.file, 0, 1) == 77, "the position is not shared any more"
        assert "-count: " in self.event_count()[0]


class Tcp:
    """A TCP connection between parent and child, with unread data both ways, and options; perhaps closed in one direction."""

    def __init__(self, place, rng):
        family, address = rng.choice([(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
        self.listener = socket.create_server((address, 0), family=family, backlog=5)
        self.client = socket.create_connection(self.listener.getsockname()[:2])
        self.peer, _ = self.listener.accept()
        self.data = [rng.randbytes(rng.choice([0, 10, 3000, 60_000])) for _ in range(2)]
        self.is_half_closed = rng.random() < 0.3
        self.is_parent = False
        options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
            (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2),
            (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
        ]
        for one in (self.client, self.peer):
            for option in options:
                if rng.random() < 0.3:
                    one.setsockopt(*option)

    def parent(self, pid):
        self.is_parent = True
        self.mine, self.expected = self.client, self.data[1]
        self.peer.close()
        self.listener.close()
        self.send(self.data[0])
        if self.is_half_closed:
            self.mine.shutdown(socket.SHUT_WR)

    def child(self):
        self.mine, self.expected = self.peer, self.data[0]
        self.client.close()
        self.send(self.data[1])

    def send(self, data):
        self.mine.settimeout(20)
        self.mine.sendall(data)

    def state(self):
        # It has arrived when both have asked each other.
        waiting = len(self.mine.recv(1 << 17, socket.MSG_PEEK | socket.MSG_DONTWAIT)) if self.expected else 0
        return [waiting, self.mine.getsockname()[:2], self.mine.getpeername()[:2], self.is_half_closed]

    def use(self):
        self.mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        received = b""
        while len(received) < len(self.expected):
            chunk = self.mine.recv(len(self.expected) - len(received))
            assert chunk, "the connection is closed"
            received += chunk
        assert received == self.expected, "data of the connection differs"
        if not (self.is_parent and self.is_half_closed):
            self.mine.sendall(b"after")

    def finish(self):
        expected = b"" if self.is_half_closed and not self.is_parent else b"after"
        assert self.mine.recv(99) == expected
        if not self.is_parent:
            self.listener.settimeout(20)
            again = socket.create_connection(self.listener.getsockname()[:2])
            self.listener.accept()[0].close()
            again.close()


class Futex:
    """A semaphore of the C library in shared memory, and a robust mutex that nobody holds."""

    def __init__(self, place, rng):
        self.memory = mmap.mmap(-1, 4096)
        self.address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.memory)))
        self.count = rng.randint(0, 5)
        check(libc.sem_init(self.address, 1, self.count))
        self.is_parent = False

    def parent(self, pid):
        self.is_parent = True

    def child(self):
        pass

    def state(self):
        value = ctypes.c_int()
        libc.sem_getvalue(self.address, ctypes.byref(value))
        return value.value

    def use(self):
        if self.is_parent:
            libc.sem_post(self.address)

    def finish(self):
        assert self.state() == self.count + 1


KINDS = {
    "pipes": Pipes,
    "packets": Packets,
    "socket pair": SocketPair,
    "passed": Passed,
    "shared memory": SharedMemory,
    "tcp": Tcp,
    "futex": Futex,
}
