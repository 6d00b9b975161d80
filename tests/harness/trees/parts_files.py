"""Parts of nodes: memory and files. `state` is what must be the same afterwards; `use` runs after a resume and asserts that it works.
Numbers below keys that end in `~` may differ by some seconds."""

import ctypes
import fcntl
import hashlib
import mmap
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


class Memory:
    """Private blocks, one of them made read-only, one with a hole."""

    def __init__(self, place, rng):
        self.blocks = []
        for _ in range(rng.randint(1, 4)):
            block = mmap.mmap(-1, rng.randint(1, 30) << 12, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            block.write(rng.randbytes(len(block)))
            self.blocks.append(block)
        self.big = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE") and rng.random() < 0.3:
            self.big.madvise(mmap.MADV_HUGEPAGE)
        if rng.random() < 0.3:
            self.big.madvise(mmap.MADV_DONTFORK)
        self.big[1 << 20 : (1 << 20) + 100] = rng.randbytes(100)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.big))
        check(libc.mprotect(ctypes.c_void_p(self.address + (2 << 20)), ctypes.c_size_t(1 << 20), rng.choice([0, 1])))

    def state(self):
        return [digest(block[:]) for block in self.blocks] + [digest(self.big[: 2 << 20])]

    def use(self):
        for block in self.blocks:
            block[0:4] = b"used"
        self.big[0:4] = b"used"


class OpenFile:
    """A file with a position, written through two descriptors of one description."""

    def __init__(self, place, rng):
        self.path = place + "/file"
        flags = os.O_RDWR | os.O_CREAT | rng.choice([0, os.O_APPEND, os.O_NONBLOCK, os.O_CLOEXEC, os.O_SYNC, os.O_NOATIME])
        self.fd = os.open(self.path, flags, 0o600)
        self.content = rng.randbytes(rng.randint(0, 50_000))
        os.write(self.fd, self.content)
        self.twin = fcntl.fcntl(self.fd, fcntl.F_DUPFD, rng.randint(50, 900))
        self.at = os.lseek(self.fd, rng.randint(0, len(self.content)), 0)
        if rng.random() < 0.3:
            os.chmod(self.path, 0)
        if rng.random() < 0.3:
            os.rename(self.path, self.path + ".renamed")

    def state(self):
        return [os.lseek(self.twin, 0, 1), digest(os.pread(self.fd, 100_000, 0)), fcntl.fcntl(self.fd, fcntl.F_GETFL)]

    def use(self):
        os.lseek(self.twin, 3, 0)
        assert os.lseek(self.fd, 0, 1) == 3, "the descriptors have one position"


class Deleted:
    """Files without a name: deleted, deleted and made again, and one that never had a name."""

    names = ("plain", "again")


    def __init__(self, place, rng):
        self.fds = []
        for name in self.names:
            path = f"{place}/{name}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.write(fd, rng.randbytes(rng.randint(1, 20_000)))
            if rng.random() < 0.3:
                os.ftruncate(fd, 5 << 20)
            if name == "linked":
                os.link(path, path + ".second")
            os.unlink(path)
            if name == "again":
                with open(path, "w") as file:
                    file.write("another file of the same name")
            self.fds.append(fd)
        if rng.random() < 0.4:
            self.fds.append(os.open(place, os.O_RDWR | os.O_TMPFILE, 0o600))
            os.write(self.fds[-1], b"never had a name")

    def state(self):
        return [[os.fstat(fd).st_size, oct(os.fstat(fd).st_mode), digest(os.pread(fd, 30_000, 0))] for fd in self.fds]

    def use(self):
        for fd in self.fds:
            os.pwrite(fd, b"used", 0)
            assert os.pread(fd, 4, 0) == b"used"


class Linked(Deleted):
    """A file that is deleted, whose second name stays."""

    names = ("linked",)


class Mapped:
    """Mappings of a file: shared, private with written pages, read-only, and of a deleted one."""

    def __init__(self, place, rng):
        pages = rng.randint(2, 20)
        self.path = place + "/mapped"
        self.maps = []
        for name in ("mapped", "deleted"):
            fd = os.open(f"{place}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
            os.write(fd, rng.randbytes(pages << 12))
            self.maps.append(mmap.mmap(fd, pages << 12))
            private = mmap.mmap(fd, pages << 12, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            private[4096 : 4096 + 50] = rng.randbytes(50)
            self.maps += [private, mmap.mmap(fd, 4096, prot=mmap.PROT_READ, offset=4096)]
            self.maps[-3][0:50] = rng.randbytes(50)
            os.close(fd)
        os.unlink(f"{place}/deleted")

    def state(self):
        return [digest(one[:]) for one in self.maps]

    def use(self):
        self.maps[0][0:4] = b"used"
        with open(self.path, "rb") as file:
            assert file.read(4) == b"used", "a shared mapping writes to its file"
        before = self.maps[1][0:8]
        self.maps[1][8:12] = b"mine"
        with open(self.path, "rb") as file:
            assert file.read(12)[8:] != b"mine", "a private mapping does not"
        assert len(before) == 8


class InMemory:
    """A sealed memfd, one that is mapped, and a file of /dev/shm."""

    def __init__(self, place, rng):
        self.sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
        os.write(self.sealed, rng.randbytes(5000))
        fcntl.fcntl(self.sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | rng.choice([0, fcntl.F_SEAL_WRITE, fcntl.F_SEAL_GROW]))
        plain = os.memfd_create("mapped")
        os.ftruncate(plain, 20_000)
        self.shared = mmap.mmap(plain, 20_000)
        self.shared[5:105] = rng.randbytes(100)
        self.private = mmap.mmap(plain, 20_000, flags=mmap.MAP_PRIVATE)
        self.private[7000:7100] = rng.randbytes(100)
        self.shm = "/dev/shm/" + place.replace("/", "-")
        with open(self.shm, "wb") as file:
            file.write(rng.randbytes(3000))
        os.chmod(self.shm, 0o640)

    def state(self):
        with open(self.shm, "rb") as file:
            content = digest(file.read())
        seals = fcntl.fcntl(self.sealed, fcntl.F_GET_SEALS)
        data = [digest(os.pread(self.sealed, 9999, 0)), digest(self.shared[:]), digest(self.private[:])]
        return [content, oct(os.stat(self.shm).st_mode), seals, *data]

    def use(self):
        try:
            os.ftruncate(self.sealed, 1)
        except PermissionError:
            return
        raise AssertionError("the seal is gone")


class Locks:
    """Locks of all three kinds; somebody else must not get them."""

    def __init__(self, place, rng):
        self.paths = [f"{place}/{name}" for name in ("flock", "posix", "description")]
        self.files = [open(path, "w+b") for path in self.paths]
        fcntl.flock(self.files[0], rng.choice([fcntl.LOCK_EX, fcntl.LOCK_SH]))
        fcntl.lockf(self.files[1], fcntl.LOCK_EX, 10, rng.randint(0, 100))
        fcntl.fcntl(self.files[2], fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 5, 20, 0))
        if rng.random() < 0.9:
            # A daemon that has the file, too, is a reason for a refusal.
            os.register_at_fork(after_in_child=self.files[1].close)

    def use(self):
        with open(self.paths[0]) as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                raise AssertionError("the flock is gone")
        pid = os.fork()
        if pid == 0:
            lost = 0
            for number, path in enumerate(self.paths[1:], 1):
                try:
                    fcntl.lockf(open(path, "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    lost |= number
                except OSError:
                    pass
            os._exit(lost)
        lost = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert lost == 0, f"of the process and the description, locks are gone: {lost:02b}"


class Directory:
    """A working directory that is deleted, or renamed, and a half-read open directory."""

    def __init__(self, place, rng):
        self.where = place + "/where"
        os.mkdir(self.where)
        self.before = os.getcwdb()
        os.chdir(self.where)
        self.what = rng.choice(["stays", "deleted", "renamed"])
        if self.what == "deleted":
            os.rmdir(self.where)
        elif self.what == "renamed":
            os.rename(self.where, self.where + ".renamed")
        self.listed = place + "/listed"
        os.mkdir(self.listed)
        self.fd = os.open(self.listed, os.O_RDONLY | os.O_DIRECTORY)
        self.path_only = os.open(self.listed, os.O_PATH)

    def state(self):
        return [os.readlink("/proc/self/cwd"), sorted(os.listdir(self.fd)), os.readlink(f"/proc/self/fd/{self.path_only}")]

    def use(self):
        with open(self.listed + "/new", "w"):
            pass
        # An overlay looks for new names when a descriptor is set back.
        os.lseek(self.fd, 0, 0)
        assert os.listdir(self.fd) == ["new"]


class Fifo:
    """A FIFO with data that nobody has read."""

    def __init__(self, place, rng):
        os.mkfifo(place + "/fifo")
        self.fd = os.open(place + "/fifo", os.O_RDWR | os.O_NONBLOCK)
        self.data = rng.randbytes(rng.randint(0, 3000))
        os.write(self.fd, self.data)

    def state(self):
        return struct.unpack("i", fcntl.ioctl(self.fd, 0x541B, b"    "))[0]

    def use(self):
        assert not self.data or os.read(self.fd, 9999) == self.data


class SystemV:
    """Segments and messages of System V."""

    def __init__(self, place, rng):
        libc.shmat.restype = ctypes.c_void_p
        self.shm = check(libc.shmget(0, 8192, 0o1640))
        self.address = libc.shmat(self.shm, None, 0)
        self.data = rng.randbytes(100)
        ctypes.memmove(self.address, self.data, 100)
        self.queue = check(libc.msgget(0, 0o1600))
        self.messages = [(rng.randint(1, 9), rng.randbytes(rng.randint(1, 100))) for _ in range(rng.randint(0, 4))]
        for kind, text in self.messages:
            check(libc.msgsnd(self.queue, struct.pack("l", kind) + text, len(text), 0))

    def state(self):
        return digest(ctypes.string_at(self.address, 8192))

    def use(self):
        buffer = ctypes.create_string_buffer(1000)
        for kind, text in self.messages:
            size = check(libc.msgrcv(self.queue, buffer, 900, 0, 0o4000))
            assert struct.unpack_from("l", buffer.raw)[0] == kind and buffer.raw[8 : 8 + size] == text, "a message differs"


class Undo:
    """A semaphore that the kernel gives back when the process ends."""

    def __init__(self, place, rng):
        self.sem = check(libc.semget(0, 1, 0o1600))
        check(libc.semctl(self.sem, 0, 16, 5))
        ready, self.end = os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(self.end[1])
            libc.semop(self.sem, struct.pack("Hhh", 0, -2, 0x1000), 1)
            os.write(ready[1], b"x")
            os.read(self.end[0], 1)
            os._exit(0)
        os.read(ready[0], 1)

    def state(self):
        return libc.semctl(self.sem, 0, 12)

    def use(self):
        os.write(self.end[1], b"x")
        os.waitpid(self.child, 0)
        assert libc.semctl(self.sem, 0, 12) == 5, f"the semaphore was not given back: {libc.semctl(self.sem, 0, 12)}"


KINDS = {
    "memory": Memory,
    "open file": OpenFile,
    "deleted": Deleted,
    "linked": Linked,
    "mapped": Mapped,
    "in memory": InMemory,
    "locks": Locks,
    "directory": Directory,
    "fifo": Fifo,
    "system v": SystemV,
    "undo": Undo,
}
