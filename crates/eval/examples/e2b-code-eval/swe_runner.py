"""Repairs a repository: runs its failing test, asks a model for a patch, applies it, runs the test again. All of it in a sandbox.
Every run gets a copy of the repository, so that none sees what an earlier one built or cached.

    python swe_runner.py REPOSITORY 'python3 -m unittest' file.py [file.py …]

REPOSITORY is an address that the sandbox can clone, or a directory of this machine, which is uploaded.
"""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from e2b_code_interpreter import CommandExitException, Sandbox

from metrics import write_metrics

START, WORK = "/home/user/repository-start", "/home/user/repository"
TEST_LIMIT = 60
PROMPT = Path(__file__).parent / "prompts" / "generate_patch.txt"


def run(sandbox, command, timeout=TEST_LIMIT):
    """(exit status, output) of a command in the repository."""
    try:
        done = sandbox.commands.run(command, cwd=WORK, timeout=timeout)
    except CommandExitException as error:
        done = error
    return done.exit_code, done.stdout + done.stderr


def copy(sandbox):
    """Replaces the working copy by the repository as it was."""
    sandbox.commands.run(f"rm -rf {WORK} && cp -a {START} {WORK}", user="root", timeout=300)


def bring(sandbox, repository):
    """Puts the repository into the sandbox."""
    if Path(repository).is_dir():
        archive = subprocess.run(["tar", "-C", repository, "-c", "."], check=True, capture_output=True).stdout
        sandbox.files.write("/tmp/repository.tar", io.BytesIO(archive))
        sandbox.commands.run(f"mkdir -p {WORK} && tar -xf /tmp/repository.tar -C {WORK}")
        start = "git rev-parse -q --verify HEAD || (git init -q && git add -A && git commit -qm start)"
        identity = "git config --global user.email runner@localhost && git config --global user.name runner"
        run(sandbox, f"{identity} && git config --global --add safe.directory '*' && ({start})")
    else:
        sandbox.commands.run(f"git clone --depth 1 {repository} {WORK}", timeout=300)
    sandbox.commands.run(f"mv {WORK} {START}")
    copy(sandbox)


def ask(fail_log, files):
    """A patch from the model that PATCH_MODEL names."""
    from openai import OpenAI

    prompt = PROMPT.read_text().replace("{{fail_log}}", fail_log[-6000:])
    prompt = prompt.replace("{{relevant_files}}", "\n\n".join(f"--- {name}\n{text}" for name, text in files.items()))
    answer = OpenAI().chat.completions.create(
        model=os.environ.get("PATCH_MODEL", "gpt-4o-mini"), temperature=0, messages=[{"role": "user", "content": prompt}]
    )
    return answer.choices[0].message.content


def diff_of(answer):
    """The diff, also when the model put a fence around it."""
    lines = [line for line in answer.splitlines() if not line.startswith("```")]
    return "\n".join(lines).strip("\n") + "\n"


def run_task(repository, test_command, paths, attempts=3, ask=ask):
    """Whether a patch was found, with a record of every attempt."""
    started = time.monotonic()
    records = []
    with Sandbox.create(timeout=900) as sandbox:
        bring(sandbox, repository)
        status, log = run(sandbox, test_command)
        for number in range(1, attempts + 1):
            if status == 0:
                break
            files = {path: sandbox.files.read(f"{START}/{path}") for path in paths}
            patch = diff_of(ask(log, files))
            sandbox.files.write("/tmp/attempt.patch", patch)
            copy(sandbox)
            applied, message = run(sandbox, "git apply --recount /tmp/attempt.patch")
            if applied == 0:
                status, log = run(sandbox, test_command)
            else:
                log = f"{log}\n\nThe last patch did not apply:\n{message}"
            records.append({"attempt": number, "patch": patch, "applied": applied == 0, "exit": status, "log": log[-4000:]})
    success = status == 0
    write_metrics(
        task_id=f"swe:{Path(repository).name}",
        provider="openai",
        model=os.environ.get("PATCH_MODEL", "gpt-4o-mini"),
        success=success,
        runtime_s=time.monotonic() - started,
        extra={"attempts": records},
    )
    return {"success": success, "attempts": records}


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    result = run_task(sys.argv[1], sys.argv[2], sys.argv[3:])
    print(json.dumps(result, indent=2))
    sys.exit(0 if result["success"] else 1)
