# The C++ kernel host. It speaks the frames of `kernel::frame` on descriptor 0, which it moves out of the way of user code.
#
# Each cell is compiled to a library and loaded into a process that keeps what earlier cells defined. Declarations of earlier cells
# are compiled again with each cell; their variables are inline, which the dynamic linker keeps unique. Statements, which C++ does
# not have outside of functions, become initialisers, so that they run between those of the variables, in order. The process
# is forked for every cell: when a cell crashes or is interrupted, the previous process goes on as if the cell had not run.
import ctypes
import json
import os
import signal
import socket
import tempfile


class Runner:
    """The process in which cells run. It takes requests from a socket that each process passes to the next."""

    def __init__(self):
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self.link.close()
            channel.close()
            try:
                self.serve(theirs)
            finally:
                os._exit(1)
        theirs.close()

    def ask(self, request):
        self.link.send(json.dumps(request).encode())
        size = int(self.link.recv(64) or 0)
        answer = b""
        while len(answer) < size:
            answer += self.link.recv(1 << 20)
        try:
            # The process that has passed its socket on; later ones have other parents.
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        return json.loads(answer or b'{"gone": true}')

    def serve(self, link):
        ctypes.CDLL(None).setvbuf(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"), None, 1, 0)
        while data := link.recv(1 << 20):
            request = json.loads(data)
            for name, value in request["environment"]:
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
            if request["directory"] is not None:
                go_to(request["directory"])
            done, ours = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(done)
                stoppable()
                answer = run_library(request["library"], request["cell"])
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                os.write(ours, b"k")
                os.close(ours)
                respond(link, answer)
                continue
            os.close(ours)
            alive = os.read(done, 1)
            os.close(done)
            if alive:
                os._exit(0)
            _, status = os.waitpid(child, 0)
            respond(link, {"status": status})
        os._exit(0)


def respond(link, answer):
    data = json.dumps(answer).encode()
    link.send(b"%d" % len(data))
    for start in range(0, len(data), 1 << 16):
        link.send(data[start : start + (1 << 16)])


def run_library(path, cell):
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    except OSError as error:
        return {"failure": "LinkError", "message": str(error).replace(os.path.dirname(path) + "/", ""), "at": 0}
    failed = library[f"sandcove_cell_{cell}"]()
    text = {}
    for name in ("value", "failure", "message"):
        read = library[f"sandcove_{name}"]
        read.restype = ctypes.c_char_p
        found = read()
        text[name] = None if found is None else found.decode("utf-8", "replace")
    return {**text, "at": library.sandcove_at(), "failed": failed}


def go_to(directory):
    try:
        os.chdir(directory)
    except OSError:
        pass  # A missing directory is no error.


class Channel:
    """Frames to and from the server."""

    def __init__(self):
        self.stream = os.fdopen(os.dup(0), "r+b", buffering=0)
        self.received = b""
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def close(self):
        self.stream.close()

    def send(self, kind, payload=""):
        body = payload.encode("utf-8", "replace") if isinstance(payload, str) else payload
        data = b"%s %d\n%s" % (kind.encode(), len(body), body)
        while data:
            data = data[self.stream.write(data) :]

    def frames(self):
        while data := self.stream.read(1 << 16):
            self.received += data
            while b"\n" in self.received:
                head, _, rest = self.received.partition(b"\n")
                kind, length = head.split()
                if len(rest) < int(length):
                    break
                self.received = rest[int(length) :]
                yield kind.decode(), rest[: int(length)]


class Kernel:
    def __init__(self, directory):
        self.session, self.runner, self.count = Session(directory), Runner(), 0
        #: Changes that the process that runs cells has not been sent yet.
        self.environment, self.directory = [], None

    def execute(self, code):
        self.count += 1
        channel.send("started", str(self.count))
        try:
            value = self.run(code, self.count)
            if value is not None:
                channel.send("result", json.dumps({"main": True, "data": {"text/plain": value}}))
        except Failure as failure:
            error = {"name": failure.name, "value": failure.value, "traceback": failure.traceback}
            channel.send("error", json.dumps(error))
        channel.send("done")

    def run(self, code, cell):
        library, parts, kept = self.session.compile(code, cell)
        try:
            answer = self.runner.ask(
                {"library": library, "cell": cell, "environment": self.environment, "directory": self.directory}
            )
        finally:
            os.unlink(library)
        if answer.get("gone"):
            os._exit(1)
        self.environment, self.directory = [], None
        if "status" in answer:
            return self.ended(answer["status"])
        failed = bool(answer["failure"])
        last = answer["at"] if failed else len(parts)
        # Variables that were never reached do not exist. Symbols of other libraries are not in this one.
        reached = [] if answer["failure"] == "LinkError" else [part for number, part in enumerate(parts) if number < last]
        usable = [part for part in kept if part.cell != cell or part in reached]
        usable += [part for part in reached if part not in kept and part.kind not in ("statement", "value") and not part.is_local]
        self.session.kept = usable
        if failed:
            if answer["failure"] == "sandcove::Status":
                raise Failure("ExitStatus", answer["message"])
            place = parts[last] if last < len(parts) else None
            where = f"{name_of(cell)}, line {place.line}:\n" if place else ""
            raise Failure(answer["failure"], answer["message"], f"{where}{answer['failure']}: {answer['message']}\n")
        return answer["value"]

    def ended(self, status):
        """Continues with the process of the previous cell, as that of the cell is gone."""
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGINT:
                raise Failure("Interrupted", "the cell was interrupted; what earlier cells made is kept")
            name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
            text = f"the cell was ended by {name} ({signal.strsignal(number)}); what earlier cells made is kept"
            raise Failure(name, text, text + "\n")
        if code := os.waitstatus_to_exitcode(status):
            raise Failure("ExitStatus", str(code))
        return None


signal.signal(signal.SIGINT, signal.SIG_IGN)
channel = Channel()
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
except OSError:
    pass  # The system then chooses which process to kill.
with tempfile.TemporaryDirectory(prefix="sandcove-cpp-") as directory:
    kernel = Kernel(directory)
    channel.send("hello", str(os.getpid()))
    for kind, payload in channel.frames():
        text = payload.decode("utf-8", "surrogateescape")
        if kind == "execute":
            kernel.execute(payload.decode("utf-8", "replace"))
        elif kind == "env":
            name, _, value = text.partition("=")
            kernel.environment.append((name, value))
            os.environ[name] = value
        elif kind == "unenv":
            kernel.environment.append((text, None))
            os.environ.pop(text, None)
        elif kind == "cwd":
            kernel.directory = text
            go_to(text)
