import json
def chat(context):
    return json.dumps([{'role': 'user', 'content': 'py ' + context['vars']['topic']}])
