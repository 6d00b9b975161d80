def get_assert(output, context):
    raise ValueError('bad thing')
