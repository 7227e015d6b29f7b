"""Posts bodies of many sizes over kept connections; each must come back as it was sent."""

import argparse
import http.client
import json
import random
import sys

SIZES = (0, 1, 1449, 65_536, 100_001, 2_000_003)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    connections = [http.client.HTTPConnection("127.0.0.1", options.port, timeout=20)
                   for _ in range(options.connections)]
    bodies = wrong = 0
    for number in range(options.rounds * len(SIZES)):
        body = random.Random(number).randbytes(SIZES[number % len(SIZES)])
        for connection in connections:
            connection.request("POST", "/", body=body)
            answer = connection.getresponse()
            wrong += answer.status != 200 or answer.read() != body
            bodies += 1
    print(json.dumps({"bodies": bodies, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
