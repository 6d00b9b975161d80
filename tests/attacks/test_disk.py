"""Attacks on the disk that all sandboxes share. The oracle is the host: the pool must not lose more than the sandbox's limit, and what
was taken must come back when the sandbox ends."""

import os

import pytest
import requests
from e2b import CommandExitException, Sandbox

from harness.server import API_KEY, wait_until

# Room for the pool's own bookkeeping.
SLACK = 512 << 20
ATTACKS = {
    "more than there is": "fallocate -l 100T /home/user/x",
    "more than the limit": "fallocate -l {beyond} /home/user/x",
    "clones of clones": "head -c 256M /dev/urandom >/home/user/x; for n in $(seq 400); do cp --reflink=always /home/user/x /home/user/x$n || exit 1; done",
    "a hole of an exabyte": "truncate -s 7E /home/user/x && timeout 1 cp --sparse=never /home/user/x /home/user/y",
    "punched and filled again": "for n in $(seq 40); do fallocate -l $(({beyond} / 4)) /home/user/x && fallocate -p -o 0 -l $(({beyond} / 4)) /home/user/x; done",
    "attributes": "touch /home/user/x; python3 -c \"import os\nfor n in range(4000):\n f=f'/home/user/x{{n}}'; open(f,'w').close(); os.setxattr(f,'user.x',b'x'*3000)\"",
    "hard links": "touch /home/user/x; python3 -c \"import os\nfor n in range(30000): os.link('/home/user/x', f'/home/user/{{n:0200}}')\"",
    "empty files": "python3 -c \"for n in range(30000): open(f'/home/user/{{n:0200}}','w').close()\"",
    "deep directories": "python3 -c \"import os\nos.chdir('/home/user')\nfor n in range(3000): os.mkdir('d'); os.chdir('d')\"",
    "removed but open": "exec 3>/home/user/x; rm /home/user/x; fallocate -l {beyond} /proc/self/fd/3",
}  # fmt: skip


def used(server) -> int:
    pool = os.statvfs(server.data_dir / "pool")
    return (pool.f_blocks - pool.f_bfree) * pool.f_frsize


def limit_of(server, box) -> int:
    answer = requests.get(f"{server.url}/sandboxes/{box.sandbox_id}", headers={"X-API-Key": API_KEY}, timeout=120)
    return answer.json()["diskSizeMB"] << 20


@pytest.mark.parametrize("name", ATTACKS)
def test_the_pool_keeps_its_room(server, name):
    box = Sandbox.create(timeout=1800)
    try:
        limit, before = limit_of(server, box), used(server)
        try:
            box.commands.run(ATTACKS[name].format(beyond=limit + SLACK), user="root", timeout=900)
        except CommandExitException:
            pass
        assert used(server) - before <= limit + SLACK
        assert box.commands.run("echo here").stdout == "here\n"
    finally:
        box.kill()
    wait_until(lambda: used(server) - before < SLACK, 300, "the pool gets its room back")
