def make(context):
    return "say " + context["vars"]["x"]


def chat(context):
    return [{"role": "user", "content": "shout " + context["vars"]["x"]}]
