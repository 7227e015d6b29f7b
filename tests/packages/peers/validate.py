"""Reads manifests from standard input, compares each with Kubernetes' schema, and prints them as JSON. Runs in target/venv.

What is not of Kubernetes itself (the Prometheus operator's) has no schema there, and is only parsed."""

import json
import sys

import kubernetes_validate
import yaml

VERSION = "1.36"
FOREIGN = ("monitoring.coreos.com/",)


def main():
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
    for document in documents:
        if not document["apiVersion"].startswith(FOREIGN):
            kubernetes_validate.validate(document, VERSION, strict=True)
    json.dump(documents, sys.stdout)


main()
