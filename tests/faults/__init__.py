"""What fails around and inside of Sidestep's processes: run.py."""
