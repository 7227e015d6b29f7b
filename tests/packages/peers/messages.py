"""Publishes messages to RabbitMQ, takes each back, and prints the digest of what came. Runs in the small Debian, with its python3-pika."""

import hashlib
import sys

import pika


def main():
    count, size = map(int, sys.argv[1:])
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1"))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    digest = hashlib.sha256()
    for number in range(count):
        channel.basic_publish("", queue, hashlib.shake_128(bytes([number])).digest(size))
        _, _, body = channel.basic_get(queue, auto_ack=True)
        if body is None:
            sys.exit(f"message {number} is not in the queue")
        digest.update(body)
    connection.close()
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
