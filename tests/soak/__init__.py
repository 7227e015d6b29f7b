"""A mixed load for an hour, after which nothing has grown: run.py."""
