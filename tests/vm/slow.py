"""A plugin of pytest: tests that are written for a real machine wait longer, because an emulated one is ten times as slow."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import e2b.connection_config  # noqa: E402
from e2b.sandbox_async.commands.command import Commands as AsyncCommands  # noqa: E402
from e2b.sandbox_sync.commands.command import Commands  # noqa: E402

from harness import server  # noqa: E402

SECONDS = 900.0

e2b.connection_config.REQUEST_TIMEOUT = SECONDS
server.MIN_DEADLINE_S = SECONDS
for flavour in (Commands, AsyncCommands):
    for method in (flavour.run, flavour._start):
        method.__defaults__ = tuple(SECONDS if value == 60 else value for value in method.__defaults__ or ())
