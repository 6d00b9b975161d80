import json, sys
prompt, options, context = sys.argv[3], json.loads(sys.argv[4]), json.loads(sys.argv[5])
if prompt == "fail":
    print("bad", file=sys.stderr)
    sys.exit(3)
print(f"exec {prompt} {sys.argv[1]} {sys.argv[2]} {context['vars']['x']}" if prompt != "object" else json.dumps({"a": 1}))
