"""Calls both tools of the package with the secret that its engine would hand over."""

import base64
import json
import os
import sys
from pathlib import Path

# A program's directory comes first, and this file has the name of the package.
sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

from arcade_e2b.enums import E2BSupportedLanguage  # noqa: E402
from arcade_e2b.tools.create_chart import create_static_matplotlib_chart  # noqa: E402
from arcade_e2b.tools.run_code import run_code  # noqa: E402


class Context:
    def get_secret(self, name: str) -> str:
        return os.environ[name]


said = json.loads(run_code(Context(), "print(6 * 7); 1 + 1"))
assert json.loads(said["logs"])["stdout"] == ["42\n"] if isinstance(said["logs"], str) else said["logs"]["stdout"] == ["42\n"], said
assert "hello" in run_code(Context(), "echo hello", E2BSupportedLanguage.BASH)
failed = create_static_matplotlib_chart(Context(), "1 / 0")
assert failed["base64_image"] is None and "ZeroDivisionError" in failed["error"], failed
drawn = create_static_matplotlib_chart(Context(), "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
assert base64.b64decode(drawn["base64_image"]).startswith(b"\x89PNG") and drawn["error"] is None, drawn
print("ok: run_code bash error chart")
