def get_score(named, ctx): return {"pass": False, "score": 0.1, "reason": str(named)}
def func(named, ctx): return {"pass": True, "score": 0.2, "reason": str(named)}
def other(named, ctx): return {"pass": True, "score": 0.3, "reason": str(sorted(ctx))}
