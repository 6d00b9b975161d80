import json
def call_api(prompt, options, context):
    return {'output': f"{prompt} {options['config']['opt']} {sorted(context['vars'])}", 'tokenUsage': {'total': 5, 'prompt': 3, 'completion': 2}, 'cost': 0.1, 'metadata': {'a': [1]}}
async def other(prompt, options, context):
    return {'output': {'json': prompt}}
def bad(prompt, options, context):
    return 'just text'
def err(prompt, options, context):
    raise RuntimeError('py boom')
