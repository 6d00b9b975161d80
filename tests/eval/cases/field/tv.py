def get_transform(vars, context):
    return {**vars, "y": sorted(context), "z": "py"}
