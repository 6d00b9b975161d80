def scored(output, context): return {"pass_": True, "score": 0.5, "reason": "s", "named_scores": {"n": 0.25}}
class Klass:
    @staticmethod
    def m(output, context): return 0.75
async def acheck(output, context): return True
def nested(output, context): return {"pass": True, "score": 1, "reason": "n", "componentResults": [{"pass": True, "score": 0.5, "reason": "in"}, {"pass": False, "score": 0, "reason": "out"}]}
