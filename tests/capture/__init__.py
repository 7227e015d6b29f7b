"""Captured pods, beside those that iptables captures: run.py."""
