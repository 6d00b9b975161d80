from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import six


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(six.ensure_binary("hello from six"))


ThreadingHTTPServer(("", 8000), Handler).serve_forever()
