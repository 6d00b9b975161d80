"""Templates of images that others made, from a registry that others wrote: what people do in sandboxes works in each of them."""

import os
from pathlib import Path

import pytest
from e2b import CommandExitException

from builds import builds, mark  # noqa: F401
from flavours import Terminal, Watch
from harness import real_images
from harness.memory import agent_of, peak_mib, reset_peak
from harness.real_images import RealRegistry, layout

# Size of the large image in MiB. 2048 takes some minutes more.
LARGE = int(os.environ.get("SANDCOVE_TEST_LARGE_IMAGE", "400"))
CACHE = Path(os.environ.get("SANDCOVE_TEMPLATE_CACHE", "/var/cache/sandcove-tests")) / "images"


@pytest.fixture(scope="module")
def registry(server, tmp_path_factory):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    real_images.tools()
    with RealRegistry(server.registry_port, tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def files_and_watches(box) -> None:
    box.files.make_dir("/home/user/seen")
    watch = Watch(box, "/home/user/seen")
    box.files.write("/home/user/seen/new", "text")
    assert ("create", "new") in watch.sees(1)
    watch.stop()
    box.files.rename("/home/user/seen/new", "/home/user/seen/old")
    assert box.files.read("/home/user/seen/old") == "text"
    assert [entry.name for entry in box.files.list("/home/user/seen")] == ["old"]


def commands_and_terminals(box) -> None:
    assert box.commands.run("id -un; pwd; echo \"$((40 + 2))\"").stdout == "user\n/home/user\n42\n"
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("echo no >&2; exit 7")
    assert (failed.value.exit_code, failed.value.stderr) == (7, "no\n")
    typed = box.commands.run("cat", background=True, stdin=True, timeout=0)
    box.commands.send_stdin(typed.pid, "typed\n")
    assert typed.pid in [process.pid for process in box.commands.list()]
    box.commands.close_stdin(typed.pid)
    assert typed.wait().stdout == "typed\n"
    terminal = Terminal(box)
    terminal.type("echo a$((40 + 2))b; stty size\n")
    terminal.says("a42b")
    terminal.says("24 80")
    terminal.type("exit 3\n")
    with pytest.raises(CommandExitException) as left:
        terminal.wait()
    assert left.value.exit_code == 3


def test_debian(builds, registry, tmp_path):  # noqa: F811
    """As bootstrapped: what clients rely on is installed from its own packages, if there is a way to them."""
    reference = registry.push("debian", layout(real_images.debian(CACHE), tmp_path / "layout"))
    built = builds.build(builds.template().from_image(reference).run_cmd("id -un > whose; echo $LANG > lang"))
    box = builds.box(built)
    commands_and_terminals(box)
    files_and_watches(box)
    assert box.commands.run("cat whose lang; cat /etc/debian_version; dpkg --print-architecture").stdout.startswith("user\nC.UTF-8\n12.")
    assert box.commands.run("apt-get --version; dpkg --audit; perl -e 'print 6 * 7'", user="root").stdout.endswith("42")
    if any("Provisioning was successful" in line for line in built.lines()):
        assert box.commands.run("sudo id -u; ss -Htln > /dev/null; pgrep -c . > /dev/null; curl --version > /dev/null; git --version > /dev/null; jq --version > /dev/null").stdout == "0\n"
        assert box.commands.run("ls /var/lib/apt/lists /var/cache/apt/archives/partial", user="root").stdout.strip().count(".deb") == 0


def test_musl_and_busybox(builds, registry, tmp_path):  # noqa: F811
    """As Alpine: no bash, BusyBox's programs, and musl as the C library."""
    reference = registry.push("musl", layout(real_images.musl(), tmp_path / "layout"))
    template = builds.template().from_image(reference).set_workdir("/srv/app").run_cmd("echo $0 > /tmp/shell; hello > said")
    template = template.set_workdir("/home/user").set_start_cmd("httpd -f -p 8000 -h /srv/app", "wget -q -O /dev/null http://127.0.0.1:8000/said")
    box = builds.box(builds.build(template))
    commands_and_terminals(box)
    files_and_watches(box)
    assert box.commands.run("cat /tmp/shell /srv/app/said; hello 1 || true; hello one 'and two' || echo $?").stdout.splitlines()[1:] == ["hello", "1|hello", "one|and two|hello", "3"]
    assert box.commands.run("wget -q -O - http://127.0.0.1:8000/said").stdout == "hello\n"


def test_no_distribution_and_no_shell(builds, registry, tmp_path):  # noqa: F811
    """Programs run without a shell if the command needs none. There is nothing that a terminal could show."""
    reference = registry.push("distroless", layout(real_images.distroless(), tmp_path / "layout"))
    (tmp_path / "copied").write_text("copied")
    box = builds.box(builds.build(builds.template(tmp_path).from_image(reference).copy("copied", "/srv/")))
    assert box.commands.run("/app/hello 'one word'").stdout == "one word|hello\n"
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("/app/hello 1 2")
    assert (failed.value.exit_code, failed.value.stdout) == (3, "1|2|hello\n")
    for needs_a_shell in ("/app/hello; /app/hello", "/app/hello > file", "missing"):
        with pytest.raises(CommandExitException) as failed:
            box.commands.run(needs_a_shell)
        assert failed.value.exit_code == 127 and "not found" in failed.value.stderr
    files_and_watches(box)
    assert box.files.read("/srv/copied") == "copied"
    with pytest.raises(CommandExitException, match="127"):
        Terminal(box).wait()


def test_more_than_a_hundred_layers(builds, registry, tmp_path):  # noqa: F811
    image, left = real_images.layered()
    assert len(image.layers) > 100
    reference = registry.push("layered", layout(image, tmp_path / "layout"))
    box = builds.box(builds.build(builds.template().from_image(reference)))
    assert box.commands.run("ls /srv").stdout.strip() == left
    commands_and_terminals(box)
    files_and_watches(box)


def test_a_large_image(builds, registry, tmp_path, server):  # noqa: F811
    """Every byte arrives, and neither the server nor the agent needs memory for it."""
    reference = registry.push("large", real_images.large(tmp_path / "layout", LARGE << 20))
    before = reset_peak(server.pid)
    built = builds.build(builds.template().from_image(reference))
    peak = peak_mib(server.pid)
    box = builds.box(built)
    commands_and_terminals(box)
    files_and_watches(box)
    checked = box.commands.run(f"sha256sum -c -s /{real_images.SUMS} && wc -l < /{real_images.SUMS}; du -sm /data | cut -f1", timeout=1800)
    files, mib = map(int, checked.stdout.split())
    assert files == LARGE * (1 << 20) // real_images.LARGE_FILE // 4 * 4 and abs(mib - LARGE) < 40
    agents = {name: peak_mib(agent_of(server, one)) for name, one in (("base", builds.box("base")), ("large", box))}
    print(f"{LARGE} MiB: the server has {before} MiB before, {peak} MiB at most; agents at most {agents} MiB")
    assert peak - before < 160, "the import does not hold layers in memory"
    assert agents["large"] - agents["base"] < 16
