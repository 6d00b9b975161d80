"""A service that attacks its clients and what is between it and them. The path of a request names the answer.

hostile_service.py PORT          listens itself
hostile_service.py --take PORT   stops PID 1, once port 8081 is asked to, and listens in its place
"""

import ctypes
import errno
import gzip
import os
import socket
import sys
import threading

OK = b"HTTP/1.1 200 OK\r\n"


def endless(head, piece):
    def answer(connection):
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return answer


def once(data):
    def answer(connection):
        connection.sendall(data)

    return answer


def then_silence(data):
    def answer(connection):
        connection.sendall(data)
        connection.recv(1)

    return answer


BOMB = gzip.compress(bytes(64 << 20))
ANSWERS = {
    "fine": once(OK + b"Content-Length: 4\r\n\r\nfine"),
    "endless-headers": endless(OK, b"X-More: " + b"a" * 1000 + b"\r\n"),
    "endless-header-name": endless(OK, b"a" * 65536),
    "endless-status-line": endless(b"HTTP/1.1 200 ", b"a" * 65536),
    "endless-interim-answers": endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100),
    "endless-chunk-extension": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n5;x=", b"a" * 65536),
    "endless-trailers": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: " + b"a" * 1000 + b"\r\n"),
    "endless-empty-lines": endless(b"", b"\r\n" * 30000),
    "endless-body": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"ffff\r\n" + b"a" * 65535 + b"\r\n"),
    "endless-line-of-json": endless(OK + b"Content-Type: application/json\r\n\r\n[", b'"' + b"a" * 65536 + b'",'),
    "ten-thousand-headers": once(OK + b"".join(b"X-%d: y\r\n" % n for n in range(10000)) + b"\r\n"),
    "one-header-of-a-megabyte": once(OK + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n"),
    "chunk-size-overflow": once(OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx"),
    "chunk-size-negative": once(OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
    "length-negative": once(OK + b"Content-Length: -1\r\n\r\nhello"),
    "length-overflow": once(OK + b"Content-Length: 18446744073709551616\r\n\r\nhello"),
    "length-twice": once(OK + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello"),
    "length-and-chunks": once(OK + b"Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    "length-too-large": once(OK + b"Content-Length: 500\r\n\r\nhello"),
    "unknown-coding": once(OK + b"Transfer-Encoding: zstd, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    "a-second-answer": once(OK + b"Content-Length: 5\r\n\r\nhello" + OK + b"Content-Length: 6\r\nX-Stolen: yes\r\n\r\nstolen"),
    "line-in-a-header": once(OK + b"X-A: b\rX-Stolen: yes\r\nContent-Length: 0\r\n\r\n"),
    "zero-in-a-header": once(OK + b"X-A: b\x00c\r\nContent-Length: 0\r\n\r\n"),
    "folded-header": once(OK + b"X-A: b\r\n X-Stolen: yes\r\nContent-Length: 0\r\n\r\n"),
    "invalid-utf-8": once(OK + b"X-A: \xff\xfe\r\nContent-Length: 4\r\nContent-Type: application/json\r\n\r\n\xff\xfe\xfd\xfc"),
    "status-zero": once(b"HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n"),
    "status-out-of-range": once(b"HTTP/1.1 99999 No\r\nContent-Length: 0\r\n\r\n"),
    "no-status-line": once(b"hello\r\n\r\n"),
    "version-of-the-future": once(b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "second-protocol": once(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 10000),
    "a-flood-of-settings": endless(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 1000),
    "tls-instead": once(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500),
    "nothing": once(b""),
    "half-a-head": then_silence(OK + b"Content-Le"),
    "half-a-body": then_silence(OK + b"Content-Length: 50\r\n\r\nhalf"),
    "a-bomb-of-gzip": once(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB),
    "deep-json": once(OK + b"Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200000),
}


SEIZE, INTERRUPT, GETREGS, SETREGS, SINGLESTEP = 0x4206, 0x4207, 12, 13, 9
WALL = 0x4000_0000
SYSCALL_INSTRUCTION = b"\x0f\x05"
#: Positions among the registers of x86-64, as ptrace has them.
RAX, RDI, ORIG_RAX, RIP = 10, 14, 15, 16
CLOSE = 3


def take(port):
    """Stops every thread of PID 1, has it close the socket that it listens on, and listens there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    stopped = set()
    # Threads may come and go until all are stopped.
    while running := set(os.listdir("/proc/1/task")) - stopped:
        for task in running:
            for request in (SEIZE, INTERRUPT):
                if libc.ptrace(request, int(task), None, None) and ctypes.get_errno() != errno.ESRCH:
                    raise OSError(ctypes.get_errno(), "ptrace")
        stopped |= running
    inodes = {line.split()[9] for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}") if f":{port:04X} " in line and " 0A " in line}
    for number in os.listdir("/proc/1/fd"):
        if os.readlink(f"/proc/1/fd/{number}") in {f"socket:[{inode}]" for inode in inodes}:
            close_in(libc, sorted(map(int, stopped)), int(number))
    return socket.create_server(("127.0.0.1", port), backlog=64)


def close_in(libc, threads, descriptor):
    """Makes a system call as one of the stopped threads, one that waits in a system call already."""
    registers = (ctypes.c_uint64 * 27)()
    with open("/proc/1/mem", "rb", buffering=0) as memory:
        for thread in threads:
            libc.waitpid(thread, None, WALL)
            assert libc.ptrace(GETREGS, thread, None, ctypes.byref(registers)) == 0
            memory.seek(registers[RIP] - 2)
            if memory.read(2) != SYSCALL_INSTRUCTION:
                continue
            registers[RAX], registers[RDI], registers[ORIG_RAX] = CLOSE, descriptor, 2**64 - 1
            registers[RIP] -= 2
            assert libc.ptrace(SETREGS, thread, None, ctypes.byref(registers)) == 0
            assert libc.ptrace(SINGLESTEP, thread, None, None) == 0
            libc.waitpid(thread, None, WALL)
            return
    raise AssertionError("no thread of PID 1 waits in a system call")


def serve(connection):
    try:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(65536)
            if not piece:
                return
            head += piece
        name = head.split(b" ")[1].decode().rsplit("/", 1)[-1].split("?")[0]
        ANSWERS.get(name, ANSWERS["fine"])(connection)
    except OSError:
        pass
    finally:
        connection.close()


def main():
    if sys.argv[1] == "--take":
        asked, _ = socket.create_server(("127.0.0.1", 8081)).accept()
        listener = take(int(sys.argv[2]))
        serve(asked)
    else:
        listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
    while True:
        connection, _ = listener.accept()
        connection.setblocking(True)
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
