def get_transform(output, context):
    return 'py ' + output
