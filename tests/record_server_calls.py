"""Records the system calls of the processes without privileges, in `crates/isolate/src/jail/seccomp`: those of the server process in
`recorded-server.txt`, those of the egress proxies in `recorded-egress.txt`, those of the processes that unpack images in
`recorded-unpacker.txt`.

    python3 tests/record_server_calls.py server|egress|unpacker TRACES

TRACES is a directory with the files of `strace -ff -o TRACES/t`, from suites that were run on a server that strace starts:

    exec strace -D -ff -qq -o TRACES/t sandcove serve "$@"
"""

import re
import sys
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "crates/isolate/src/jail/seccomp"
# The last call before the filter, the process, and what its file says.
LAST = {"server": "PR_SET_PDEATHSIG", "egress": "PR_SET_DUMPABLE", "unpacker": "PR_SET_PDEATHSIG"}
VERBS = {"server": "__server", "egress": "__egress", "unpacker": "__unpack"}
NAMES = {"server": "the server process", "egress": "the process of the egress proxies", "unpacker": "a process that unpacks an image"}
CALL = re.compile(r"^([a-z_0-9]+)\(")


def traced(which: str, directory: Path) -> dict[str, str]:
    """Calls, with an example of each, of the threads of such processes, from the point on where they have no rights."""
    found: dict[str, str] = {}
    files = {path.suffix: path for path in directory.glob("t.*")}

    def read(path: Path, begun: bool) -> None:
        with path.open(errors="replace") as lines:
            for line in lines:
                call = CALL.match(line)
                # The call that loads the filter is the last without it.
                if begun and call and call[1] != "seccomp" and not line.rstrip().endswith("ENOSYS (Function not implemented)"):
                    found.setdefault(call[1], line.strip())
                begun = begun or LAST[which] in line
                if begun and call and call[1] in ("clone", "clone3") and "CLONE_THREAD" in line:
                    thread = files.get("." + line.rsplit("=", 1)[1].split()[0])
                    if thread:
                        read(thread, True)

    for path in files.values():
        with path.open(errors="replace") as lines:
            if any(f'"{VERBS[which]}"' in line for line in lines if line.startswith("execve(")):
                read(path, False)
    return found


def main() -> None:
    which = sys.argv[1]
    found = traced(which, Path(sys.argv[2]))
    for call, example in sorted(found.items()):
        print(f"{call}: {example[:150]}", file=sys.stderr)
    lines = [f"# System calls that {NAMES[which]} makes. Recorded by tests/record_server_calls.py."]
    (RECORDED / f"recorded-{which}.txt").write_text("\n".join([*lines, *sorted(found)]) + "\n")


if __name__ == "__main__":
    main()
