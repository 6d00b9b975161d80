print('noise')
async def get_assert(output, context):
    return True
