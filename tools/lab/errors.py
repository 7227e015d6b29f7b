"""The one error that ends a measurement."""


class LabError(Exception):
    """What happened, where, and what to do about it; printed without a trace."""
