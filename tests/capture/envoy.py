"""Envoy as Istio's sidecar is: two listeners that go where the connection was meant to go."""

import contextlib
import itertools
import json
import os
import re
import shutil

from capture import clients
from capture.tasks import PROXY
from testkit import paths, wait

OUTBOUND, INBOUND = 15001, 15006
WORKERS = 2
FILTERS = "type.googleapis.com/envoy.extensions.filters"
LOGS = "type.googleapis.com/envoy.extensions.access_loggers"
STARTED = re.compile("starting main dispatch loop")
# Addresses of Services that only Envoy knows, by what they lead to.
VIPS = {"outside": {4: "10.96.0.10", 6: "fd00:96::10"}, "self": {4: "10.96.0.11", 6: "fd00:96::11"}}
VIP_PORT = 80
ANY = {4: "0.0.0.0", 6: "::"}
# IP_TTL, IPV6_UNICAST_HOPS
TIME_TO_LIVE = {4: (0, 2), 6: (41, 16)}
PASSTHROUGH = {4: "127.0.0.6", 6: "::6"}
# At which nobody listens: who dials it wants a line in the log.
MARK_PORT = 99
DRAIN_SECONDS = 1
PARENT_SECONDS = 2
numbers = itertools.count()


class Envoy:
    """One Envoy of a pod, and those that take over from it. `around` stands before its command."""

    def __init__(self, pod, program_port, around=()):
        self.pod = pod
        self.around = around
        self.epoch = 0
        self.directory = pod.world.directory / f"envoy-{pod.name}-{next(numbers)}"
        self.directory.mkdir()
        os.chown(self.directory, *PROXY)
        self.access_log = self.directory / "access.log"
        self.config = self.directory / "envoy.json"
        self.config.write_text(json.dumps(configuration(pod, program_port, self.access_log), indent=1))
        self.base = self.directory / "base-id"
        self.process = None

    def start(self):
        self.process = self.run("--use-dynamic-base-id", "--base-id-path", self.base)
        self.pod.wait_listening(self.process, OUTBOUND, INBOUND, each=WORKERS)
        return self

    def run(self, *options):
        return self.pod.spawn(f"envoy-{self.directory.name}-{self.epoch}", [
            *self.around, paths.envoy(), "-c", self.config, "--concurrency", WORKERS, "--log-level", "info",
            "--file-flush-interval-msec", 50, "--socket-path", f"@{self.directory.name}",
            "--drain-time-s", DRAIN_SECONDS, "--parent-shutdown-time-s", PARENT_SECONDS, *options], PROXY)

    def restart(self):
        """The next one takes the listeners over while this one serves; ends when this one has ended."""
        old, self.epoch = self.process, self.epoch + 1
        self.process = self.run("--base-id", self.base.read_text().strip(), "--restart-epoch", self.epoch)
        self.process.wait_output(STARTED, 30)
        old.wait(PARENT_SECONDS + 30)
        self.pod.processes.remove(old)

    def kill(self):
        self.pod.kill(self.process)
        self.forget()

    def stop(self):
        self.pod.end(self.process)
        self.forget()

    def forget(self):
        """Envoy leaves its shared memory behind for the next one."""
        with contextlib.suppress(OSError, ValueError):
            for epoch in range(self.epoch + 1):
                os.unlink(f"/dev/shm/envoy_shared_memory_{int(self.base.read_text()) * 10 + epoch}")
        shutil.rmtree(self.directory, ignore_errors=True)

    def accesses(self, mark=0):
        """Of each connection that has ended since: listener, what was dialled, by whom, and from where to where it went."""
        with contextlib.suppress(OSError):
            return [line.split() for line in self.access_log.read_bytes()[mark:].decode().splitlines()]
        return []

    def mark(self):
        """Where the log is when everything before has been written: behind a line of our own."""
        start = len(self.accesses())
        self.pod.run(clients.steps, self.pod.world.outside.ip[4], MARK_PORT)
        wait.until(lambda: any(line[1].endswith(f":{MARK_PORT}") for line in self.accesses()[start:]),
                   "Envoy to write its log")
        return self.access_log.stat().st_size


# --- configuration ------------------------------------------------------------------------------------------------

def configuration(pod, program_port, access_log):
    log = {"name": "file", "typed_config": {
        "@type": f"{LOGS}.file.v3.FileAccessLog", "path": str(access_log), "log_format": {"text_format_source": {
            "inline_string": "NAME %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %UPSTREAM_LOCAL_ADDRESS% "
                             "%UPSTREAM_REMOTE_ADDRESS%\n"}}}}
    outside = {family: f"{address.rpartition(sep)[0]}{sep}{4:x}"
               for (family, address), sep in zip(pod.ip.items(), (".", ":"))}
    leads = {"outside": outside, "self": pod.ip}
    vips = [(name, family) for name in VIPS for family in (4, 6)]
    return {"static_resources": {
        "listeners": [
            outbound(log), inbound(log),
            *(vip_listener(f"{name}{family}", VIPS[name][family], log) for name, family in vips)],
        "clusters": [
            *(original_dst(f"outbound{family}", family, ANY[family]) for family in ANY),
            *(original_dst(f"inbound{family}", family, PASSTHROUGH[family]) for family in ANY),
            *(static(f"{name}{family}", family, leads[name][family], program_port) for name, family in vips)],
    }}


def outbound(log):
    return {"name": "outbound", **everywhere(OUTBOUND), "use_original_dst": True, "filter_chains": by_family("outbound", log)}


def inbound(log):
    original = {"name": "original_dst", "typed_config": {
        "@type": f"{FILTERS}.listener.original_dst.v3.OriginalDst"}}
    return {"name": "inbound", **everywhere(INBOUND), "listener_filters": [original],
            "filter_chains": by_family("inbound", log)}


def by_family(name, log):
    return [{"filter_chain_match": {"prefix_ranges": [{"address_prefix": any_one, "prefix_len": 0}]},
             "filters": [tcp_proxy(f"{name}{family}", log, name)]} for family, any_one in ANY.items()]


def vip_listener(cluster, host, log):
    return {"name": f"vip-{cluster}", "address": address(host, VIP_PORT), "bind_to_port": False,
            "filter_chains": [{"filters": [tcp_proxy(cluster, log, "vip")]}]}


def everywhere(port):
    return {"address": address("0.0.0.0", port), "additional_addresses": [{"address": address("::", port)}],
            "tcp_backlog_size": 4096}


def address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


def tcp_proxy(cluster, log, name):
    own = json.loads(json.dumps(log).replace("NAME", name))
    return {"name": "tcp", "typed_config": {"@type": f"{FILTERS}.network.tcp_proxy.v3.TcpProxy",
                                            "stat_prefix": name, "cluster": cluster, "access_log": [own]}}


def original_dst(name, family, source):
    return {"name": name, "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", **limits(), **dial(family, source)}


def static(name, family, host, port):
    return {"name": name, "type": "STATIC", **limits(), **dial(family, ANY[family]),
            "load_assignment": {"cluster_name": name, "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": address(host, port)}}]}]}}


def dial(family, source):
    """Programs know Envoy's connections by how far they may go."""
    level, name = TIME_TO_LIVE[family]
    option = {"level": level, "name": name, "int_value": clients.HOPS, "state": "STATE_PREBIND"}
    return {"upstream_bind_config": {"source_address": {"address": source, "port_value": 0}, "socket_options": [option]}}


def limits():
    most = {"max_connections": 1 << 20, "max_pending_requests": 1 << 20, "max_requests": 1 << 20}
    return {"connect_timeout": "10s", "circuit_breakers": {"thresholds": [most]}}
