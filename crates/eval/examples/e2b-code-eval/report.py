"""Makes `promptfoo_report.md` of everything under PROMPTFOO_RESULTS_DIR."""

import json
import statistics
from pathlib import Path

from metrics import directory


def records():
    for path in sorted(directory().glob("*.json")):
        try:
            record = json.loads(path.read_text())
            record["task_id"], record["success"]
        except (OSError, ValueError, KeyError, TypeError):
            print(f"skipped {path}: not a record")
            continue
        yield record


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, round(share * (len(values) - 1)))]


def main():
    found = sorted(records(), key=lambda record: (record["task_id"], record.get("timestamp") or 0))
    lines = ["# Code evaluation", "", "| task | provider | model | success | runtime_s |", "| --- | --- | --- | --- | --- |"]
    for record in found:
        runtime = record.get("runtime_s") or 0
        cells = [record["task_id"], record.get("provider"), record.get("model"), record["success"], f"{runtime:.3f}"]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    if found:
        times = [record.get("runtime_s") or 0 for record in found]
        passed = sum(record["success"] for record in found)
        lines += [
            "",
            f"{passed} of {len(found)} succeeded ({100 * passed / len(found):.0f} %). "
            f"Run time: median {statistics.median(times):.3f} s, 95th percentile {percentile(times, 0.95):.3f} s.",
        ]
    Path("promptfoo_report.md").write_text("\n".join(lines) + "\n")
    print(f"promptfoo_report.md: {len(found)} records")


if __name__ == "__main__":
    main()
