"""The HTTP server on a Unix socket."""

from __future__ import annotations

import logging
import mimetypes
import os
import secrets
import signal
import socketserver
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import layout, routes, security
from .http import BODY_LIMIT, Problem, Request, Response, as_json, redirect
from .pages import account, api, cart, catalogue, directory, documents, guides, home, lists, orders, requests  # noqa: F401 - routes
from .wire import Connection, DatabaseError

log = logging.getLogger("portal")
STATIC = Path(__file__).with_name("static")
_SAFE_HEADERS = (
    ("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'self'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
)


def connect() -> Connection:
    """Open a session on the database that the environment names."""
    return Connection(
        os.environ.get("PORTAL_DB", "/run/db"),
        user=os.environ.get("PORTAL_DB_USER", "portal"),
        password=os.environ.get("PORTAL_DB_PASSWORD", "portal-server"),
        database=os.environ.get("PORTAL_DB_NAME", "portal"),
    )


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"

    def version_string(self) -> str:
        return "Portal/1"

    timeout = 120

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("GET", body=False)

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str, *, body: bool = True) -> None:
        path = self.path.split("?", 1)[0]
        if method == "GET" and (path == "/health" or path == "/sw.js" or path.startswith("/static/")):
            self._send(_file(path), body)
            return
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_LIMIT:
            self.close_connection = True
            self._send(Response(b"The form is too large.", 413, "text/plain"), body)
            return
        data = self.rfile.read(int(length))
        try:
            db = connect()
        except (OSError, DatabaseError):
            log.exception("no database")
            self._send(Response(b"The database does not answer. Try again in a moment.", 503, "text/plain"), body)
            return
        try:
            self._send(respond(Request(method, self.path, self.headers, data, db)), body)
        finally:
            db.close()

    def _send(self, response: Response, body: bool) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.media_type)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in (*_SAFE_HEADERS, *response.headers):
            self.send_header(name, value)
        if not any(name == "Cache-Control" for name, _ in response.headers):
            self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(response.body)

    def address_string(self) -> str:
        return "browser"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def respond(request: Request) -> Response:
    """Answer a request: who asks, may they, and what do they get."""
    security.recognise(request)
    visit = ""
    if request.session is None and security.VISIT_COOKIE not in request.cookies:
        visit = request.cookies[security.VISIT_COOKIE] = secrets.token_urlsafe(24)
    response = _routed(request)
    if visit:
        response.headers.append(security.cookie(security.VISIT_COOKIE, visit))
    return response


def _routed(request: Request) -> Response:
    try:
        handler, arguments, public = routes.find(request)
        if request.person is None and not public:
            if request.wants_json:
                return as_json({"error": "Please sign in first."}, 401)
            return redirect(f"/sign-in?next={quote(request.target)}" if request.method == "GET" else "/sign-in")
        if request.method == "POST":
            security.guard(request)
        return handler(request, **arguments)
    except Problem as problem:
        return _refusal(request, problem.status, str(problem))
    except DatabaseError as error:
        if error.code[:2] not in ("22", "23"):  # data that does not fit is the person's, anything else is ours
            raise
        log.info("refused by the database", extra={"code": error.code, "constraint": error.constraint})
        return _refusal(request, 409, "The data does not allow that: somebody may have changed it meanwhile.")


def _refusal(request: Request, status: int, message: str) -> Response:
    return as_json({"error": message}, status) if request.wants_json else layout.trouble(request, status, message)


def _file(path: str) -> Response:
    if path == "/health":
        return Response(b"ok\n", media_type="text/plain")
    name = "sw.js" if path == "/sw.js" else path[len("/static/") :]
    file = STATIC / name
    if "/" in name or not file.is_file():
        return Response(b"There is no such file.\n", 404, "text/plain")
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(file.read_bytes(), media_type=kind, headers=[("Cache-Control", "no-cache")])


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            log.error("a request failed: %s", traceback.format_exc())


def main() -> None:
    """Serve until SIGTERM on the socket that the command line names."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    path = sys.argv[1]
    if os.path.exists(path):
        os.unlink(path)
    with Server(path, Handler) as server:

        def stop(*_: Any) -> None:
            threading.Thread(target=server.shutdown).start()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        server.serve_forever(poll_interval=0.2)
