def main(context):
    return f"{context['provider']} {{{{l}}}}"
