# Runs as root in the sandbox of a build, with the template's own Python, whichever that is. Installs IPython where that Python lacks
# it, and prints one line of JSON: the path of Python, and the directories that it loads code from.
import json
import os
import subprocess
import sys

PACKAGES = "/usr/local/lib/sandcove-interpreter"
WANTED = "ipython>=8.18,<10"
OLDEST = (8, 18)


def fail(text):
    sys.stderr.write(text + "\n")
    sys.exit(1)


def version():
    """The version of IPython in this Python; None without one."""
    # Not an import of matplotlib_inline, which needs matplotlib.
    code = "import sys; sys.path.append(%r); import IPython, importlib.util as found; " % PACKAGES
    code += "assert found.find_spec('matplotlib_inline'); print(*IPython.version_info[:2])"
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return tuple(int(part) for part in found.stdout.split()) if found.returncode == 0 else None


def bundled():
    """Command of the pip that comes with Python; None where a distribution has left it out."""
    try:
        import ensurepip

        directory = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
        wheels = sorted(name for name in os.listdir(directory) if name.startswith("pip-"))
        return [sys.executable, os.path.join(directory, wheels[-1], "pip")] if wheels else None
    except (ImportError, OSError):
        return None


def installed():
    """Command of a pip that is there: that of this Python, the one that comes with it, or that of another."""
    others = [[path, "--python", sys.executable] for path in ("/usr/local/bin/pip3", "/usr/bin/pip3")]
    for command in [[sys.executable, "-m", "pip"], bundled()] + others:
        try:
            if command and subprocess.run(command + ["--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return command
        except OSError:
            pass
    return None


def pip():
    found = installed()
    if found:
        return found
    for manager, command in (
        ("apt-get", "apt-get update -q && apt-get install -q -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*"),
        ("apk", "apk add --no-cache py3-pip"),
        ("dnf", "dnf install -y --setopt=install_weak_deps=False python3-pip && dnf clean all"),
        ("microdnf", "microdnf install -y python3-pip"),
        ("zypper", "zypper --non-interactive install --no-recommends python3-pip"),
        ("pacman", "pacman -Sy --noconfirm --needed python-pip"),
    ):
        if subprocess.run(["/bin/sh", "-c", "command -v " + manager], stdout=subprocess.DEVNULL).returncode == 0:
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
            subprocess.run(["/bin/sh", "-c", command], env=environment)
            found = installed()
            if found:
                return found
    fail("%s has no pip, and no package manager installs one: install IPython in the template" % sys.executable)


def sources():
    """Directories that code is loaded from, without those inside others."""
    code = "import sys; sys.path.append(%r); print(chr(10).join(sys.path[1:]))" % PACKAGES
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout.decode()
    paths = [os.path.realpath(path) for path in found.splitlines() if os.path.isdir(path)]
    paths += [path for path in found.splitlines() if os.path.isdir(path) and os.path.isabs(path)]
    kept = []
    for path in sorted(set(path.rstrip("/") for path in paths)):
        if path and ":" not in path and not any(path == other or path.startswith(other + "/") for other in kept):
            kept.append(path)
    return [path.lstrip("/") for path in kept]


def main():
    if sys.version_info < (3, 9):
        text = "the code interpreter needs Python 3.9 or newer, and %s is %d.%d: install another one in an earlier step, and put it first on PATH"
        fail(text % ((sys.executable,) + sys.version_info[:2]))
    if not os.path.isabs(sys.executable or ""):
        fail("Python does not know its own path")
    if version() is None:
        print("installing IPython", flush=True)
        options = ["install", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:", "--target", PACKAGES]
        environment = dict(os.environ, PIP_ROOT_USER_ACTION="ignore", PIP_USER="0")
        done = subprocess.run(pip() + options + ["--upgrade", WANTED], env=environment)
        if done.returncode != 0:
            fail("pip failed to install IPython, which the code interpreter runs: give pip an index that builds can reach, or install %s in an earlier step" % WANTED)
    found = version()
    if found is None or found < OLDEST:
        name = "none that works" if found is None else "%d.%d" % found
        fail("the code interpreter needs IPython %d.%d or newer, and the template has %s: install %s in an earlier step" % (OLDEST + (name, WANTED)))
    print(json.dumps({"python": sys.executable, "sources": sources()}), flush=True)


main()
