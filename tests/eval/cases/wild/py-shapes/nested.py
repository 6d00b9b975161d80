def get_assert(output, context):
    return {'pass': False, 'score': 0.5, 'reason': 'parts', 'componentResults': [{'pass': True, 'score': 1, 'reason': 'one'}, {'pass': False, 'score': 0, 'reason': 'two'}], 'namedScores': {'q': 0.5}}
