"""The one exception that means "the test found something wrong"."""


class Failure(Exception):
    """Carries one sentence for the reader: what was expected, what was seen, where."""


def check(condition, message):
    """An assertion that also works under `python3 -O`."""
    if not condition:
        raise Failure(message)
