import json
import sys

print("flag" if sys.argv[1] == "--flag" else "none", sys.argv[2], sorted(json.loads(sys.argv[3])), json.loads(sys.argv[4])["vars"])
