"""A Kubernetes control plane and nodes that it serves: run.py."""
