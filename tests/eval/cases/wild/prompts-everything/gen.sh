echo "exec says hi"
