"""Plans of random process trees: a seed gives a plan, and a plan says everything that `inside.py` does."""

import random

# How often a kind is drawn, where it is not once.
OWN = {
    "memory": 2, "open file": 2, "deleted": 2, "mapped": 2, "in memory": 1, "locks": 1, "directory": 1, "fifo": 1, "system v": 1,
    "threads": 2, "waits": 1, "timers": 2, "ticks": 1, "signals": 2, "dead": 1, "terminal": 1, "attributes": 2, "restricted": 1,
    "listener": 2, "closed": 1, "datagrams": 1, "unix": 2, "unix waiting": 1, "epoll": 2, "pidfd": 1, "netlink": 1, "owner": 1, "watch": 1,
    # What is known to be refused, where it is not kept, is rare: a refusal costs another round.
    "stopped": 0.05, "message queue": 0.05, "waiting": 0.05, "undo": 0.05, "multicast": 0.05, "unread": 0.05, "linked": 0.05,
    "personality": 0.03,
}  # fmt: skip
LINKS = {"pipes": 3, "packets": 0.1, "socket pair": 3, "passed": 0.1, "shared memory": 2, "tcp": 3, "futex": 1}
HOW = {"fork": 5, "session": 1, "daemon": 1, "group": 2, "terminal": 1, "exec": 1}
MAX_DEPTH = 3


def plan(seed: str, only: list[str] | None = None) -> dict:
    """The plan of a tree; `only` are the kinds that its nodes may have."""
    rng = random.Random(seed)
    name = "t" + seed.replace("/", "-")
    return node(rng, seed, name, f"/home/user/trees/{name}", 0, only)


def node(rng, seed, name, place, depth, only) -> dict:
    links = {kind: weight for kind, weight in LINKS.items() if only is None or kind in only} or LINKS
    kinds = {kind: weight for kind, weight in OWN.items() if only is None or kind in only}
    parts = drawn(rng, kinds, rng.randint(1, 5))
    children = []
    if depth < MAX_DEPTH:
        for number in range(rng.choice([0, 1, 1, 2, 3] if depth == 0 else [0, 0, 0, 1, 1, 2])):
            child = node(rng, seed, f"{name}/{number}", place, depth + 1, only)
            child["how"] = drawn(rng, HOW, 1)[0]
            child["links"] = [] if child["how"] == "exec" else drawn(rng, links, rng.randint(0, 3))
            children.append(child)
    return {
        "seed": seed, "name": name, "place": place, "parts": parts, "children": children,
        "nice": rng.choice([0, 0, 0, 5, 11]), "umask": rng.choice([0o22, 0o22, 0o77, 0o2]),
    }  # fmt: skip


def drawn(rng, weights, count) -> list[str]:
    """Up to `count` different kinds."""
    return sorted(set(rng.choices(list(weights), list(weights.values()), k=count))) if weights else []


def nodes(one: dict):
    yield one
    for child in one["children"]:
        yield from nodes(child)


def describe(one: dict, indent: str = "") -> str:
    """A plan as text, for the report of a failure."""
    links = f" links {one['links']}" if one.get("links") else ""
    lines = [f"{indent}{one['name']} ({one.get('how', 'root')}): {', '.join(one['parts'])}{links}"]
    return "\n".join(lines + [describe(child, indent + "  ") for child in one["children"]])
