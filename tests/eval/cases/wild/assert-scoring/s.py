def score(named_scores, context):
    return {'pass': True, 'score': 0.42, 'reason': 'py'}
