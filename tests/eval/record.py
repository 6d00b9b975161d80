#!/usr/bin/env python3
"""Records the verdicts of the real promptfoo on every suite in `cases/` (or those named) under `golden/`.

    tests/eval/record.py node /path/to/node_modules/promptfoo/dist/src/entrypoint.js [--only NAME...]
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor

from verdicts import CASES, HERE, run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="+")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    golden = HERE / "golden"
    golden.mkdir(exist_ok=True)

    def record(case):
        found = run(options.command, case)
        if found.get("refused"):
            print(f"{case.stem}: no result: {found['said']}")
            found = {"refused": True}
        (golden / f"{case.stem}.json").write_text(json.dumps(found, indent=1) + "\n")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(record, [case for case in CASES if not options.only or case.stem in options.only]))


if __name__ == "__main__":
    main()
