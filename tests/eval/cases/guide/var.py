def get_var(var_name, prompt, other_vars):
    return {"output": f"python for {var_name} beside {other_vars['number']}"}
