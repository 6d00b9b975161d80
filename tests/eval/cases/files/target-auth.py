def get_auth(context):
    return {"token": "python-" + context["vars"]["x"]}


def named(context):
    return {"token": "named"}
