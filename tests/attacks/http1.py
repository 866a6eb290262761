"""Calls as JSON over HTTP/1.1, from the attacks on the port that speaks all protocols."""

import http.client
import json
import os
import sys


def skip_without_http():
    """gRPC's library answers no HTTP on its port."""
    if "library" in os.environ.get("SRU_ATTACKS_FLAGS", ""):
        sys.exit(77)


def post(port, path, body, timeout=20):
    """The status, and how long the answer is; (0, 0) if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    text = body if isinstance(body, (str, bytes)) else json.dumps(body, separators=(",", ":"))
    try:
        connection.request("POST", path, text, {"content-type": "application/json"})
        response = connection.getresponse()
        size = 0
        while part := response.read(1 << 18):
            size += len(part)
        return response.status, size
    except (OSError, http.client.HTTPException):
        return 0, 0
    finally:
        connection.close()
