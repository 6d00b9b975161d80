import sys, json
ctx = json.loads(sys.argv[1])
print('whole ' + ctx['vars']['x'])
