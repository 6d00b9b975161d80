"""`sandcove validate`: a configuration that is checked, and providers that are asked whether they answer."""

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

CONFIG = """
prompts: ['{{x}}']
providers:
  - {id: 'file://answer.py', label: mine}
  - {id: 'file://broken.py', label: broken}
tests:
  - vars: {x: 1}
"""


def run(sandcove, directory, *arguments):
    done = subprocess.run([*sandcove, *arguments], cwd=directory, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG)
    (tmp_path / "answer.py").write_text("def call_api(prompt, options, context):\n    return {'output': {'asked': prompt}}\n")
    (tmp_path / "broken.py").write_text("def call_api(prompt, options, context):\n    raise ValueError('no key')\n")
    return tmp_path


@pytest.mark.parametrize("command", [["validate"], ["validate", "config"], ["eval", "validate"], ["eval", "validate", "config"]])
def test_a_configuration_is_checked(sandcove, suite, command):
    assert run(sandcove, suite, *command) == (0, "the configuration is valid: 1 test, 2 providers, 1 prompt\n", "")
    assert run(sandcove, suite, *command, "-c", "promptfooconfig.yaml")[0] == 0
    (suite / "wrong.yaml").write_text("prompts: ['x']\nproviders: [nobody]\n")
    code, out, err = run(sandcove, suite, *command, "-c", "wrong.yaml")
    assert (code, out) == (1, "") and "wrong.yaml:2:13" in err


def test_files_of_checks_in_tables_and_in_made_tests_are_looked_for_first(sandcove, suite):
    (suite / "there.py").write_text("def get_assert(output, context):\n    return True\n")
    (suite / "tests.csv").write_text('x,__expected,__expected2\n"a\nb",python: file://there.py,contains: a\nc,file://there.py:get_assert,python: file://gone.py\n')
    (suite / "rows.json").write_text('[{"x": 1, "__expected": "javascript: file://gone.js"}]')
    (suite / "made.py").write_text("def generate_tests():\n    return [{'vars': {'x': 1}, 'assert': [{'type': 'python', 'value': 'file://made_gone.py'}]}]\n")
    (suite / "scenario.yaml").write_text("config: [{vars: {x: 1}}]\ntests: [{assert: [{type: javascript, value: 'file://played.js:check'}]}]\n")
    wanted = {
        "tests: tests.csv": "tests.csv:4:1: error: file of a check not found: `gone.py` (row 2, column `__expected2`)",
        "tests: rows.json": "file of a check not found: `gone.js` (column `__expected`)",
        "tests: made.py": "file of a check not found: `made_gone.py`",
        "scenarios: ['file://scenario.yaml']": "file of a check not found: `played.js`",
    }
    for tests, message in wanted.items():
        (suite / "promptfooconfig.yaml").write_text(f"prompts: ['{{{{x}}}}']\nproviders: [echo]\n{tests}\n")
        code, out, err = run(sandcove, suite, "validate")
        assert (code, out) == (1, ""), err
        assert message in err and "there.py" not in err, err


def test_providers_of_a_configuration_are_asked(sandcove, suite):
    code, out, _ = run(sandcove, suite, "validate", "target", "-c", "promptfooconfig.yaml")
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == 'mine: answered {"asked":"Hello, world!"}'
    assert lines[1].startswith("broken: failed: ") and "ValueError: no key" in out
    assert lines[-1] == "1 provider answered, 1 failed"
    assert run(sandcove, suite, "validate", "target", "-c", ".", "-t", "mine")[0] == 0
    code, _, err = run(sandcove, suite, "validate", "target", "-c", ".", "-t", "nobody")
    assert code == 1 and "no provider `nobody`" in err


class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.asked += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b'"hello"')

    do_GET = do_POST

    def log_message(self, *_):
        pass


def test_one_provider_is_asked_by_its_id(sandcove, tmp_path):
    assert run(sandcove, tmp_path, "validate", "target", "-t", "echo")[:2] == (0, 'echo: answered "Hello, world!"\n1 provider answered, 0 failed\n')
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.asked, server.status = 0, 200
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/chat"
    code, out, _ = run(sandcove, tmp_path, "validate", "target", "-t", address)
    assert code == 0 and out.startswith(f'{address}: answered "hello"')
    server.shutdown()
    for arguments in (["-t", "nobody:x"], ["-t", "openai:gpt-4o"], []):
        assert run(sandcove, tmp_path, "validate", "target", *arguments)[0] == 1
