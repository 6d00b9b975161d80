"""The program under test: it reads the question and converts units. A call of your own model goes here."""

import re

METRES = {"metres": 1, "kilometres": 1000, "miles": 1609.344, "feet": 0.3048}


def call_api(prompt, options, context):
    found = re.fullmatch(r"How many (\w+) are ([\d.]+) (\w+)\?", prompt)
    if not found:
        return {"error": f"not a question about units: {prompt}"}
    unit, amount, origin = found.groups()
    if unit not in METRES or origin not in METRES:
        return {"output": f"I do not know {unit if unit not in METRES else origin}."}
    return {"output": f"{float(amount) * METRES[origin] / METRES[unit]:g} {unit}"}
