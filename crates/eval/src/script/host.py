"""Runs the user's Python for the evaluator: one call at a time, a line of JSON each way.

Calls come on descriptor 3 and replies leave on 4, so that nothing the user's code prints, to whatever depth, can be taken for a
reply. A file stays loaded until its text changes.
"""

import asyncio
import dataclasses
import functools
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import sys
import traceback

calls = os.fdopen(3, "r", encoding="utf-8")
replies = os.fdopen(4, "w", encoding="utf-8")
# What the user's code starts must not hold the pipes open.
os.set_inheritable(3, False)
os.set_inheritable(4, False)

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
modules = {}


class NotFound(Exception):
    """What the call names is not there."""


class Source(importlib.machinery.SourceFileLoader):
    """Compiles the text of the user's files every time. Python's cache takes a text for the one before when both have the same size
    and were written in the same second, as happens while somebody edits or a program writes them."""

    def path_stats(self, path):
        # Without them the cache is neither read nor written.
        raise OSError("the cache is not used")


def user_finder(path):
    """Finds modules in the directories of the user's files and below, but for installed packages."""
    parts = os.path.abspath(path).split(os.sep)
    if "site-packages" in parts or not any(parts[: len(own)] == own for own in user_directories):
        raise ImportError("not a directory of the user's files", path=path)
    machinery = importlib.machinery
    return machinery.FileFinder(
        path, (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES), (Source, machinery.SOURCE_SUFFIXES)
    )


user_directories = []
sys.path_hooks.insert(0, user_finder)


def module(path):
    """The module in a file, loaded anew after a change."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from None
    known = modules.get(path)
    if known and known[0] == text:
        return known[1]
    directory = os.path.dirname(os.path.abspath(path))
    if directory.split(os.sep) not in user_directories:
        user_directories.append(directory.split(os.sep))
        sys.path_importer_cache.clear()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    name = os.path.splitext(os.path.basename(path))[0]
    if not path.endswith(tuple(importlib.machinery.SOURCE_SUFFIXES)):
        raise NotFound(f"{path} is not a Python file")
    spec = importlib.util.spec_from_file_location(name, path, loader=Source(name, path))
    loaded = importlib.util.module_from_spec(spec)
    # Classes of the module are looked up by its name, by pickle and dataclasses among others.
    sys.modules.setdefault(name, loaded)
    spec.loader.exec_module(loaded)
    modules[path] = (text, loaded)
    return loaded


def function(path, name, defaults):
    """A function of a file: the named one, else the first default that is there."""
    loaded = module(path)
    for candidate in [name] if name else defaults:
        found = loaded
        for part in candidate.split("."):
            found = getattr(found, part, None)
        if callable(found):
            # `Class.method` without a static method gets an object to be called on.
            owner, _, method = candidate.rpartition(".")
            if owner and "self" in list(inspect.signature(found).parameters)[:1]:
                return getattr(functools.reduce(getattr, owner.split("."), loaded)(), method)
            return found
    raise NotFound(f"{path} has no function `{name or '` or `'.join(defaults)}`")


@functools.lru_cache(maxsize=1024)
def inline(code, parameters):
    """A function made of an expression, or of lines that return something. A line with a line break at its end, as blocks of YAML have
    it, is one of the second kind."""
    lines = code.split("\n") if "\n" in code else [f"return {code}"]
    # Lines are indented as the code is, because Python refuses tabs beside spaces.
    own = re.search(r"^[^\S\n]+(?=\S)", code, re.M) if "\n" in code else None
    indent = own[0] if own else "    "
    source = f"def main({', '.join(parameters)}):\n" + "".join(f"{indent}{line}\n" for line in lines)
    space = {"json": json}
    exec(compile(source, "<inline>", "exec"), space)  # noqa: S102
    return space["main"]


def plain(value):
    """Values that JSON does not know, as their nearest relatives that it does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for method in ("model_dump", "tolist", "item"):
        convert = getattr(value, method, None)
        if callable(convert):
            return convert()
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be returned: return text, numbers, booleans, lists or dicts of them")


def answer(call):
    """The value of one call."""
    arguments = call["arguments"]
    if call["op"] == "inline":
        called = inline(call["code"], tuple(call["parameters"]))
    else:
        called = function(call["path"], call.get("name"), call["default"])
        if call["op"] == "provider" and call["default"] == ["call_api"] and len(arguments) == 3:
            prompt, context, options = arguments
            arguments = [prompt, options, context]
        elif call["op"] == "provider" and call["default"] != ["call_moderation_api"]:
            arguments = [arguments[0], arguments[2]]
    value = called(*arguments)
    if inspect.isawaitable(value):
        value = loop.run_until_complete(value)
    return value


def handle(line):
    """The reply to one line."""
    call = json.loads(line)
    try:
        return json.dumps({"value": answer(call)}, default=plain, allow_nan=False)
    except NotFound as error:
        return json.dumps({"error": {"kind": "not_found", "message": str(error)}})
    except BaseException as error:  # noqa: BLE001: sys.exit() in the user's code must not end the worker
        if isinstance(error, KeyboardInterrupt):
            raise
        # The first frames are this file's.
        text = "".join(traceback.format_exception(error))
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return json.dumps({"error": {"kind": "raised", "message": message, "traceback": text}})


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass


replies.write('{"ready": true}\n')
replies.flush()
for line in calls:
    reply = handle(line)
    flush()
    replies.write(reply + "\n")
    replies.flush()
