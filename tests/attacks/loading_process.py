"""A process in which nothing happens but loading, so that its time, its memory and all it touches are the loader's.

    python loading_process.py GOOD_BUNDLE

reads paths and answers each with a line of JSON. A path is loaded in a child of its own: what one bundle leaves behind
in memory does not hide what the next one takes. The good bundle is loaded before, which imports all that loading needs.
"""

import json
import os
import resource
import sys
import time
from typing import Any

from ashore_runtime import Refused, bundle

_seen: list[list[str]] | None = None
"""What Python's audit events tell of, while somebody wants to know."""


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None:
        _seen.append([event, str(arguments[0]) if arguments else ""])


def _load(path: str) -> dict[str, Any]:
    global _seen
    refusal = None
    # A child begins with the memory that its parent has now, and this is the most that it has ever had.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _seen = []
    begun = time.process_time()
    try:
        bundle.load(path)
    except Refused as error:
        refusal = str(error)
    seconds = time.process_time() - begun
    events, _seen = _seen, None
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"refusal": refusal, "seconds": seconds, "kilobytes": after - before, "events": events}


def _in_a_child(path: str) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(_load(path)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


if __name__ == "__main__":
    sys.addaudithook(_listen)
    bundle.load(sys.argv[1])
    for line in sys.stdin:
        sys.stdout.write(_in_a_child(line.rstrip("\n")) + "\n")
        sys.stdout.flush()
