require('http').createServer((_, answer) => answer.end(require('greeting')('node'))).listen(3000)
