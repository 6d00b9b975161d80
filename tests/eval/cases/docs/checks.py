import asyncio
from typing import Any, Dict, Union


def get_assert(output: str, context: Dict[str, Any]) -> Union[bool, float, Dict[str, Any]]:
    print("Prompt:", context["prompt"])
    print("Vars", context["vars"]["x"])
    return {"pass": True, "score": 0.6, "reason": "Looks good to me", "named_scores": {"nested": 0.3}}


def custom(output, context):
    return "world" in output.lower()


async def grading(output, context):
    await asyncio.sleep(0)
    return {"pass_": True, "score": 0.8, "reason": "snake"}


def configured(output, context):
    return len(output) > context["config"]["min"]


class Checker:
    @staticmethod
    def check(output, context):
        return 0.5


def no(output, context):
    return False


def expected(output, context):
    return context["vars"]["x"]
