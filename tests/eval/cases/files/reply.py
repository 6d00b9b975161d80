import sys

if sys.argv[2] == "fail":
    print("could not", file=sys.stderr)
    sys.exit(3)
print(f"{sys.argv[1]}/{sys.argv[2]}")
