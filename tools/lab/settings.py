"""Figures that all measurements share."""

#: A service must answer within this many seconds after its start.
START_LIMIT = 20.0
#: A process may take this long to end after SIGTERM before it is killed.
STOP_LIMIT = 10.0
