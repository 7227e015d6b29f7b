"""The names of Services, for programs that ask for them: of this cluster nobody else serves names."""

import http.client
import socket
import struct
import threading

from kube.addresses import CONTROL
from testkit.failure import Failure

DOMAIN = "cluster.local"
PORT, HEADER_BYTES, MOST_BYTES = 53, 12, 512
A, CNAME, INTERNET = 1, 5, 1
GOOD, FAILED, UNKNOWN = 0, 2, 3
# An answer by the server that knows, to a question that wants recursion.
ANSWER = 0x8580
TURN_SECONDS = 0.5


class NameServer:
    """Answers at the address of the control plane; it asks the API server anew each time, so that no answer is old."""

    def __init__(self, plane):
        self.api = plane.api
        self.is_ended = False
        self.socket = plane.namespace.call(bound)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def stop(self):
        self.is_ended = True
        self.thread.join()
        self.socket.close()

    def serve(self):
        while not self.is_ended:
            try:
                datagram, client = self.socket.recvfrom(MOST_BYTES)
            except TimeoutError:
                continue
            answer = self.answer(datagram)
            if answer:
                self.socket.sendto(answer, client)

    def answer(self, datagram):
        try:
            name, kind, end = question(datagram)
        except (IndexError, struct.error, UnicodeDecodeError):
            return None
        try:
            records = self.resolve(name)
            code = UNKNOWN if records is None else GOOD
        except (Failure, OSError, http.client.HTTPException):
            records, code = None, FAILED
        found = [record(*one) for one in records or () if one[1] == CNAME or one[1] == kind]
        head = struct.pack("!6H", int.from_bytes(datagram[:2], "big"), ANSWER | code, 1, len(found), 0, 0)
        return head + datagram[HEADER_BYTES:end] + b"".join(found)

    def resolve(self, name):
        """Records, each a name, a kind and data; None if there is no such name."""
        service, _, rest = name.partition(".")
        namespace, _, rest = rest.partition(".")
        if not service or not namespace or rest != f"svc.{DOMAIN}":
            return None
        found = self.api.get({"kind": "Service", "metadata": {"name": service, "namespace": namespace}})
        if found is None:
            return None
        if found["spec"]["type"] == "ExternalName":
            target = found["spec"]["externalName"].rstrip(".")
            return [(name, CNAME, encoded(target)), *(self.resolve(target) or ())]
        return [(name, A, socket.inet_aton(address)) for address in self.addresses(found) if ":" not in address]

    def addresses(self, service):
        spec, place = service["spec"], service["metadata"]
        if spec["clusterIP"] != "None":
            return spec["clusterIPs"]
        slices = self.api.list("EndpointSlice", place["namespace"], f"kubernetes.io/service-name={place['name']}")
        return [address for piece in slices for endpoint in piece.get("endpoints") or ()
                if endpoint["conditions"].get("ready") for address in endpoint["addresses"]]


def bound():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(TURN_SECONDS)
    made.bind((CONTROL, PORT))
    return made


def question(datagram):
    """The name that is asked for, which kind of record, and where the question ends."""
    labels, at = [], HEADER_BYTES
    while datagram[at]:
        labels.append(datagram[at + 1:at + 1 + datagram[at]].decode().lower())
        at += 1 + datagram[at]
    kind, = struct.unpack_from("!H", datagram, at + 1)
    return ".".join(labels), kind, at + 5


def record(name, kind, data):
    """Nobody keeps it: no time to live."""
    return encoded(name) + struct.pack("!HHIH", kind, INTERNET, 0, len(data)) + data


def encoded(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
