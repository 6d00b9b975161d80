"""Runs inside a sandbox: builds process trees from plans, has every process describe its own state, and has it use what it has.

    inside.py launch PLANS      starts the trees of a file with plans, and returns when all processes are ready
    inside.py ask STEP PLANS    asks every process for a step (`state`, `use`, `finish`); prints the answers as JSON

A process of a tree is a node. It makes its parts (`parts_*.py`), starts its children and then waits on a socket of its own for questions.
"""

import fcntl
import json
import os
import random
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.abspath(__file__)
TIOCGSID = 0x5429


def kinds():
    import parts_files
    import parts_links
    import parts_process
    import parts_sockets

    own = {name: kind for module in (parts_files, parts_process, parts_sockets) for name, kind in module.KINDS.items()}
    return own, parts_links.KINDS


class Node:
    def __init__(self, plan, inherited):
        self.plan = plan
        # Parts by name, and what could not be made here.
        self.parts, self.missing = dict(inherited), {}
        self.listener = socket.socket(socket.AF_UNIX)
        # An abstract name: the directory of the tree belongs to its parts.
        self.listener.bind("\0tree-" + plan["name"])
        own, links = kinds()
        for number, kind in enumerate(plan["parts"]):
            name = f"{number}-{kind}"
            place = os.path.join(plan["place"], plan["name"].replace("/", "-") + "-" + name)
            os.mkdir(place)
            try:
                self.parts[name] = own[kind](place, random.Random(f"{plan['seed']} {plan['name']} {name}"))
            except Exception as error:
                # Reported: a kind that is missing is not tested.
                self.missing[name] = repr(error)
        for number, child in enumerate(plan["children"]):
            self.start(number, child, links)
        if nice := plan["nice"]:
            os.nice(nice)
        os.umask(plan["umask"])
        self.listener.listen(8)

    def start(self, number, child, links):
        made = {}
        for kind in child["links"]:
            rng = random.Random(f"{child['seed']} {child['name']} {kind}")
            place = os.path.join(child["place"], child["name"].replace("/", "-") + "-" + kind)
            os.mkdir(place)
            try:
                made[kind] = links[kind](place, rng)
            except Exception as error:
                self.missing[f"{number}-{kind}"] = repr(error)
        how = child["how"]
        if how == "terminal":
            import pty

            pid, terminal = pty.fork()
            if pid:
                self.terminal = terminal
        else:
            pid = os.fork()
        if pid:
            for kind, link in made.items():
                link.parent(pid)
                self.parts[f"{number}-{kind}"] = link
            if how == "group":
                try:
                    os.setpgid(pid, pid)
                except OSError:
                    pass
            return
        try:
            self.listener.close()
            if how == "session":
                os.setsid()
            elif how == "daemon":
                os.setsid()
                if os.fork():
                    os._exit(0)
            elif how == "group":
                os.setpgid(0, 0)
            if how == "exec":
                # Nothing of the parent's is there but the descriptors that it passes on.
                os.execv(sys.executable, [sys.executable, "-I", "-S", PROGRAM, "node", json.dumps(child)])
            for link in made.values():
                link.child()
            Node(child, {f"link-{kind}": link for kind, link in made.items()}).serve()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except InterruptedError:
                continue
            with peer:
                step = peer.recv(100).decode()
                peer.sendall(json.dumps(self.answer(step)).encode())

    def answer(self, step):
        answers = {}
        for name, part in self.parts.items():
            act = getattr(part, step, None)
            if act is None:
                continue
            try:
                answers[name] = act()
            except Exception as error:
                answers[name] = {"error": f"{step}: {type(error).__name__}: {error}"}
        if step == "state":
            answers["process"] = [os.getpid(), os.getpgid(0), os.getsid(0), os.readlink("/proc/self/cwd"), os.nice(0)]
            answers["terminal"] = terminal()
            if self.missing:
                answers["missing"] = self.missing
        return answers


def terminal():
    """Groups of this process's controlling terminal: that in the foreground, and that of its session."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        return error.errno
    try:
        return [os.tcgetpgrp(fd), struct.unpack("i", fcntl.ioctl(fd, TIOCGSID, bytes(4)))[0]]
    finally:
        os.close(fd)


def nodes(plan):
    yield plan
    for child in plan["children"]:
        yield from nodes(child)


def ask(name, step, deadline=60, begins=False):
    """Asks a node. One that `begins` may not listen yet."""
    end = time.monotonic() + (deadline if begins else 1)
    while True:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(deadline)
        try:
            peer.connect("\0tree-" + name)
            peer.sendall(step.encode())
            text = b""
            while chunk := peer.recv(1 << 16):
                text += chunk
            return json.loads(text)
        except (ConnectionRefusedError, ConnectionResetError) as error:
            if time.monotonic() > end:
                return {"process": {"error": f"no answer: {error}"}}
            time.sleep(0.02)
        except (OSError, ValueError) as error:
            return {"process": {"error": f"no answer: {type(error).__name__} {error}"}}
        finally:
            peer.close()


def launch(plans):
    for plan in plans:
        os.makedirs(plan["place"], exist_ok=True)
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.chdir(plan["place"])
            os.environ["SANDCOVE_TREE"] = plan["name"]
            log = os.open(os.path.join(plan["place"], "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.closerange(3, 1000)
            os.execv(sys.executable, [sys.executable, "-I", "-S", PROGRAM, "node", json.dumps(plan)])
    for plan in plans:
        for node in nodes(plan):
            # Twice: the first answer loads what answers need.
            answer = ask(node["name"], "state", 20, begins=True)
            if "error" in answer["process"]:
                # It fails in everything that follows.
                print(node["name"], answer["process"]["error"])
                break


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "node":
        Node(json.loads(arguments[0]), {}).serve()
    elif command == "launch":
        with open(arguments[0]) as file:
            launch(json.load(file))
    else:
        with open(arguments[1]) as file:
            plans = json.load(file)
        for step in arguments[0].split("+"):
            answers = {node["name"]: ask(node["name"], step) for plan in plans for node in nodes(plan)}
            print(json.dumps(answers))
