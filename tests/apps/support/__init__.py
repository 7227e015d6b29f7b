"""Servers and clients that the tests of real programs share, and the soak test uses, too."""
