"""Programs that are either side of one talk: `... server` prints its port, `... client PORT` a line of JSON."""

from apps.support import echo
from testkit.failure import check


def run(case, argv, env=None, seconds=60):
    """Runs both sides and returns what the client says at its end; it must have checked something."""
    process = case.start("server", [*argv, "server"], env=env)
    port = process.wait_output(echo.LISTENING, 30).group(1)
    result = case.run_json("client", [*argv, "client", port], env=env, seconds=seconds)
    process.must_run()
    check(result["bytes"] > 0 and result["connections"] > 0, f"the client checked nothing: {result}")
    return result
