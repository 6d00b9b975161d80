def call_api(prompt, options, context): return {'error': 'no'}
