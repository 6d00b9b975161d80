def beforeEach(context, info):
    test = context["test"]
    if not test.get("metadata", {}).get("quiet"):
        test["vars"]["x"] += "!"
        test["assert"].append({"type": "javascript", "value": "output.length", "metric": "added"})
        return {"test": test}


def afterEach(context, info):
    return {"result": {"namedScores": {"seen": context["result"]["namedScores"]["length"] / 2}, "metadata": {"from": info["hookName"]}}}


def afterAll(context, info):
    assert len(context["results"]) == 4 and context["evalId"], context
