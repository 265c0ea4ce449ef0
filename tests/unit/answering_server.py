"""An HTTP server that gives one answer to whatever it is asked: what another version, or no ibmon at all, may say."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.paths.append(self.path)
        code, body = self.server.answer
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def answering():
    """A server whose `answer` is (status, body), and whose `paths` are what was asked for."""
    with HTTPServer(("127.0.0.1", 0), _Handler) as http:
        http.answer, http.paths = (404, b""), []
        http.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield http
        finally:
            http.shutdown()
            thread.join()
