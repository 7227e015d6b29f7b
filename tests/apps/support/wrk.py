"""wrk with its error counters made readable."""

import re

from testkit import paths
from testkit.failure import check

SCRIPT = """
done = function(summary, latency, requests)
  local e = summary.errors
  print(string.format("RESULT requests=%d bytes=%d connect=%d read=%d write=%d status=%d timeout=%d",
        summary.requests, summary.bytes, e.connect, e.read, e.write, e.status, e.timeout))
end
"""


def start(case, url, seconds, connections=16, role="wrk"):
    """Starts wrk with up to two threads in the background."""
    script = case.tmp / "wrk.lua"
    if not script.exists():  # another wrk may be reading it just now
        script.write_text(SCRIPT)
    return case.start(role, [paths.program("wrk"), f"-t{min(2, connections)}", f"-c{connections}", f"-d{seconds}s",
                             "--timeout", "10s", "-s", script, url])


def result(process, seconds=60.0):
    """Waits for wrk's end and returns its counters."""
    process.wait(seconds)
    found = re.search(r"RESULT (.*)", process.output())
    check(found, f"wrk printed no result:\n{process.tail()}")
    return {key: int(value) for key, value in (pair.split("=") for pair in found.group(1).split())}


def check_clean(counters):
    """No failed request of any kind, and requests at all."""
    errors = {key: value for key, value in counters.items() if key not in ("requests", "bytes") and value}
    check(not errors, f"wrk saw errors {errors} in {counters['requests']} requests")
    check(counters["requests"] > 0, "wrk completed no request")
