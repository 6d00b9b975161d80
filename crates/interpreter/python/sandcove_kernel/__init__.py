"""The Python kernel host: an IPython shell in a process of its own, driven by the interpreter server over one socket.

Two phases, so that a process may be warmed once and forked many times: ``warmup`` imports and builds everything while
there is one thread and no client; ``attach`` gives the forked process its streams, its socket and its own randomness, and
serves requests. What crosses the socket is written down in ``channel``.

Three processes run this code, each a fork of the one before: the warm process of a template (``warm``), which the host forks into
new sandboxes; the zygote of a sandbox (``zygote``), which is that fork, or was started in the sandbox; and a kernel
(``attach``, then ``serve``).
"""
