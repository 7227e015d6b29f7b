"""What goes wrong with processes under load: run.py."""
