def get_assert(output, context):
    return {'pass': True, 'score': 0.6, 'reason': 'Looks good ' + context['vars']['x']}
def other(output, context):
    return len(output) > context['config']['min']
