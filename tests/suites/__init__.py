"""Test suites of others: run.py."""
