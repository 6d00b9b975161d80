"""Records the system calls of the server process, in `crates/isolate/src/jail/seccomp/recorded-server.txt`.

    python3 tests/record_server_calls.py TRACES

TRACES is a directory with the files of `strace -ff -o TRACES/t`, from suites that were run on a server that strace starts:

    exec strace -D -ff -qq -o TRACES/t sandcove serve "$@"
"""

import re
import sys
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "crates/isolate/src/jail/seccomp/recorded-server.txt"
# The last call before the filter.
LAST = "PR_SET_PDEATHSIG"
CALL = re.compile(r"^([a-z_0-9]+)\(")


def traced(directory: Path) -> dict[str, str]:
    """Calls, with an example of each, of the threads of server processes, from the point on where they have no rights."""
    found: dict[str, str] = {}
    files = {path.suffix: path for path in directory.glob("t.*")}

    def read(path: Path, begun: bool) -> None:
        with path.open(errors="replace") as lines:
            for line in lines:
                call = CALL.match(line)
                if begun and call and not line.rstrip().endswith("ENOSYS (Function not implemented)"):
                    found.setdefault(call[1], line.strip())
                begun = begun or LAST in line
                if begun and call and call[1] in ("clone", "clone3") and "CLONE_THREAD" in line:
                    thread = files.get("." + line.rsplit("=", 1)[1].split()[0])
                    if thread:
                        read(thread, True)

    for path in files.values():
        with path.open(errors="replace") as lines:
            if any('"__server"' in line for line in lines if line.startswith("execve(")):
                read(path, False)
    return found


def main() -> None:
    found = traced(Path(sys.argv[1]))
    for call, example in sorted(found.items()):
        print(f"{call}: {example[:150]}", file=sys.stderr)
    lines = ["# System calls that the server process makes. Recorded by tests/record_server_calls.py."]
    RECORDED.write_text("\n".join([*lines, *sorted(found)]) + "\n")


if __name__ == "__main__":
    main()
