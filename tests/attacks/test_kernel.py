"""Attacks on the kernel by system calls, as root inside. A program in `programs` makes each and keeps what it got; a witness on the
host then looks at the sandbox and at the host itself. The attack's own word counts only against us."""

import subprocess

import pytest
import witness as outside

from programs import names

GROUPS = ["namespaces", "mounts", "agent", "settings", "interfaces", "priorities", "sockets", "devices", "filesystems"]
ATTACKS = [(group, name) for group in GROUPS for name in names(group)]
# Attacks that work where nothing holds them back: on the host, as root, in namespaces that are thrown away. So what holds them in a
# sandbox is the sandbox.
CONTROLS = [
    ("namespaces", "clone3_with_a_user_namespace"),
    ("namespaces", "clone_with_stray_upper_bits"),
    ("namespaces", "vfork_style_clone_with_mounts"),
    ("namespaces", "unshare_of_control_groups"),
    ("mounts", "a_memory_file_system"),
    ("mounts", "a_bind_of_the_root"),
    ("mounts", "a_control_group_hierarchy"),
    ("mounts", "a_file_system_context"),
    ("mounts", "a_clone_of_the_tree"),
    ("mounts", "a_handle_of_the_root"),
    ("settings", "the_host_name_by_call"),
    ("settings", "the_kernels_log"),
    ("interfaces", "a_map_of_bpf"),
    ("interfaces", "faults_handled_in_user_space"),
    ("interfaces", "a_ring"),
    ("interfaces", "a_key"),
    ("interfaces", "watching_a_whole_mount"),
    ("interfaces", "asynchronous_requests"),
    ("interfaces", "a_call_rewritten_by_a_tracer"),
    ("priorities", "real_time_first_come"),
    ("priorities", "negative_nice"),
    ("priorities", "real_time_disk"),
    ("sockets", "netlink_of_rdma"),
    ("sockets", "a_forced_buffer"),
    ("devices", "node_of_memory"),
    ("devices", "typing_into_a_terminal"),
    ("devices", "another_sessions_terminal"),
]


@pytest.fixture(scope="module")
def host():
    return outside.of_the_host()


@pytest.fixture(scope="module")
def sandbox_before(witness):
    return witness.mounts(), witness.links(), witness.program()


@pytest.mark.parametrize("group, name", ATTACKS, ids=["-".join(one) for one in ATTACKS])
def test_attack(attacker, witness, host, sandbox_before, group, name):
    clock = outside.clock()
    process, verdict = attacker.run(group, name)
    try:
        assert verdict.startswith("held: "), verdict
        assert not witness.complaints()
        now = outside.of_the_host()
        assert now == host, {what: (host[what], now[what]) for what in host if host[what] != now[what]}
        assert abs(outside.clock() - clock) < 5
        assert (witness.mounts(), witness.links(), witness.program()) == sandbox_before
        assert not outside.keys_of(witness.ids)
    finally:
        attacker.end(process)


@pytest.mark.parametrize("group, name", CONTROLS, ids=["-".join(one) for one in CONTROLS])
def test_the_attack_works_where_nothing_holds_it(build, group, name):
    program = build(group)
    alone = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run([*alone, program, name], input="\n", capture_output=True, text=True, timeout=600, cwd="/tmp")
    if done.stdout.startswith("held: "):
        # A kernel may lack what is attacked. Then nothing is shown here, and nothing is claimed.
        pytest.skip(f"this kernel does not let the host do it either: {done.stdout.strip()}")
    assert done.stdout.startswith("broke: "), done.stdout + done.stderr


def test_the_agent_answers_after_all_of_them(box):
    assert box.commands.run("echo here").stdout == "here\n"
