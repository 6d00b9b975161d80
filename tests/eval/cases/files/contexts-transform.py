def get_transform(output, context):
    return f"{context['prompt']['raw']} {' '.join(context['vars'])}"
