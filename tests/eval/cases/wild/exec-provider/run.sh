echo "got $1"
