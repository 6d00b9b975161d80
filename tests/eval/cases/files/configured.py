def call_api(prompt, options, context):
    config = (context.get("prompt") or {}).get("config") or {}
    return {"output": f"{prompt} temperature={config.get('temperature')} top_p={config.get('top_p')}"}
