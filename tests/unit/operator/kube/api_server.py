"""A server on loopback that answers requests as set, and a kubeconfig for it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml


class Server:
    """Answers everything as it was told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, self.path, dict(self.headers.items()), body))
                status, content = outer.answers.pop(0)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def kubeconfig(folder: Path, url: str, **user: Any) -> str:
    """A kubeconfig for that server; its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return str(file)
