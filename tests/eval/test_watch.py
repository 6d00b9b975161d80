"""`sandcove eval --watch`: a run after every change of what it is made from."""

import os
import signal
import subprocess

from verdicts import ENVIRONMENT

SUITE = """\
prompts: [file://prompts/say.txt]
providers: [echo]
tests:
  - vars: {word: file://words/word.txt}
    assert: [{type: python, value: file://checks/check.py}]
"""


def test_changes_of_every_part_run_the_suite_again(tmp_path, sandcove):
    # At once: a file that is seen before its text is in it is a change, and the text is another one.
    unwatched = tmp_path / "unwatched"
    unwatched.mkdir()

    def write(name, text):
        (unwatched / "new").write_text(text)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (unwatched / "new").replace(tmp_path / name)

    write("promptfooconfig.yaml", SUITE)
    write("prompts/say.txt", "say {{word}}")
    write("words/word.txt", "hello")
    write("checks/wanted.py", "WANTED = 'hello'\n")
    write("checks/check.py", "import wanted\ndef get_assert(output, context): return wanted.WANTED in output\n")
    process = subprocess.Popen(
        [*sandcove, "eval", "--watch", "--no-cache", "--no-table", "-o", "out.json"],
        cwd=tmp_path, env={**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )

    def next_run():
        """What is said until everything waits for the next change."""
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("Waiting for changes"):
                return "".join(said)
        raise AssertionError(f"it ended: {''.join(said)}")

    try:
        assert "1 passed" in next_run()
        write("words/word.txt", "goodbye")
        said = next_run()
        assert "=== words/word.txt changed" in said and "1 failed" in said
        # A module that the script imports.
        write("checks/wanted.py", "WANTED = 'bye'\n")
        assert "1 passed" in next_run()
        write("prompts/say.txt", "say nothing")
        assert "1 failed" in next_run()
        # A mistake is reported, and its correction is noticed.
        write("promptfooconfig.yaml", SUITE.replace("python", "pyhton"))
        assert "did you mean `python`?" in next_run()
        write("promptfooconfig.yaml", SUITE.replace("file://prompts/say.txt", "'{{word}}'"))
        assert "1 passed" in next_run()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
    assert process.returncode == 130
