"""Marks on tests, read by run.py."""


def slow(seconds):
    """Not part of the quick runs: takes long, or needs programs that are only installed for `make compat`."""
    def mark(function):
        function.slow = True
        function.limit_seconds = seconds
        return function
    return mark
