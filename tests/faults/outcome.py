"""What may become of a round beside success and failure."""


class NotTried(Exception):
    """Here and now it could not be tried; says why. Neither a success nor a failure."""
