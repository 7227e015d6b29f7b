"""Real programs, with and without Sidestep: run.py."""
