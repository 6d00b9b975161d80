"""Checks of every shape that a Python assertion may have."""

import sys


def get_assert(output, context):
    print("a line that nobody should take for an answer", '{"id": 1}')
    print("and another", file=sys.stderr)
    right = output == context["vars"]["text"] and len(output) == 5
    return {"pass": right, "score": 1 if right else 0.5, "reason": f"{len(output)} letters"}


def is_long(output, context):
    return len(output) > 4


async def later(output, context):
    return 0.75


class Checks:
    @staticmethod
    def short(output, context):
        return len(output) < 100


def raises(output, context):
    raise ValueError("no such luck")


def configured(output, context):
    return output == context["config"]["word"]


def snake(output, context):
    return {
        "pass_": True,
        "score": 0.5,
        "reason": "snakes",
        "named_scores": {"style": 0.25},
        "component_results": [{"pass_": True, "score": 0.5, "reason": "inner"}],
    }


def text_true(output, context):
    return "True"


def text_false(output, context):
    return "false"


def text_number(output, context):
    return "0.25"


def text_object(output, context):
    return '{"pass": true, "score": 0.5, "reason": "as text"}'


def nothing(output, context):
    return None


def other_text(output, context):
    return "maybe"


def incomplete(output, context):
    return {"score": 1}


def low(output, context):
    return {"pass": True, "score": 0.2, "reason": "low"}


def expected(output, context):
    return "abc"
