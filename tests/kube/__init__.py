"""A Kubernetes control plane and its nodes: run.py."""
