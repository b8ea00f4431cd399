"""An independent pair of eyes, in a process of its own: when have so many pods run?

Prints "ready" once it watches, and then, when so many pods of the namespace are Running, the
monotonic time in seconds, which all processes of a machine share.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterable


def main(url: str, ca_file: str, token: str, namespace: str, count: str) -> None:
    context = ssl.create_default_context(cafile=ca_file)
    request = urllib.request.Request(
        f"{url}/api/v1/namespaces/{namespace}/pods?watch=1&resourceVersion=0",
        headers={"Authorization": f"Bearer {token}"},
    )
    running: set[str] = set()
    print("ready", flush=True)
    while len(running) < int(count):
        # The server ends the stream of a watcher that falls behind; a new one begins with all.
        with urllib.request.urlopen(request, context=context, timeout=600) as stream:
            _follow(stream, running, int(count))
    print(time.monotonic(), flush=True)


def _follow(stream: Iterable[bytes], running: set[str], count: int) -> None:
    for line in stream:
        # Most lines are of pods that do not run yet: look before decoding.
        if b'"phase":"Running"' not in line:
            continue
        event = json.loads(line)
        if event["type"] != "DELETED" and event["object"]["status"]["phase"] == "Running":
            running.add(event["object"]["metadata"]["uid"])
        if len(running) >= count:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
