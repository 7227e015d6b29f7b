"""Rules, ratios, goals and tables of tools/lab/kubeservices. Run: python3 -m unittest discover -s tools/tests"""

import ipaddress
import json
import sys
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import page  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.kubeservices import controlplane, figures, goals, main, plot, report  # noqa: E402
from lab.kubeservices.contestants import ALL, iptables, ipvs, kubeproxy, nftables, objects  # noqa: E402
from lab.kubeservices.plan import Plan  # noqa: E402
from lab.kubeservices.programs import Program  # noqa: E402
from lab.kubeservices.trial import Change, Results  # noqa: E402
from lab.kubeservices.workload import Workload  # noqa: E402
from lab.netns import TooSlow  # noqa: E402
from lab.places import Places  # noqa: E402

MACHINE = {
    "cores": 2,
    "cpu": "a processor",
    "kernel": "6.0",
    "programs": {"nft": "1.0"},
    "load_before": (0.5, 0, 0),
    "load": (1.0, 0, 0),
}


def contestant(kind, size, hollow=False):
    """One that only writes rules."""
    lab = SimpleNamespace(folder=Path("/nowhere"))
    one = kind(lab, None, Plan(), None, Workload(size, Plan.endpoints))
    one.hollow = hollow
    return one


def answer(microseconds):
    times = {"p50_us": microseconds, "p90_us": microseconds, "p99_us": microseconds, "units": 1000}
    return {"seconds": microseconds / 1e3, "cpu_us": microseconds, "connect": times, "whole": times}


def results(*microseconds, seen=0.001):
    rounds = [answer(each) for each in microseconds]
    changes = [Change(seen / 2, seen)]
    return Results(load=0.1, changes=changes, short=rounds, keep=rounds, first=rounds[:1], last=rounds[:1])


class TheWorkload(unittest.TestCase):
    def test_one_service_is_first_middle_and_last(self):
        load = Workload(1, 12)
        self.assertEqual([load.first], load.dialled)
        self.assertIs(load.middle, load.last)

    def test_no_two_services_share_anything_but_the_pods(self):
        load = Workload(100, 12)
        self.assertEqual(len({service.vip for service in load.services}), 100)
        others = [a for service in load.services if service not in load.dialled for a in service.endpoints]
        self.assertEqual(len(set(others)), 97 * 12)
        self.assertFalse(set(others) & set(load.pods))

    def test_the_spare_pod_is_no_endpoint_before_the_change(self):
        load = Workload(10, 12)
        self.assertNotIn(load.pods[-1], load.middle.endpoints)
        self.assertIn(load.pods[-1], load.middle.with_last(load.pods[-1]).endpoints)


class Iptables(unittest.TestCase):
    def test_every_chain_that_is_jumped_to_is_there(self):
        text = contestant(iptables.IptablesNft, 5).everything()
        declared = {line[1:].split()[0] for line in text.splitlines() if line.startswith(":")}
        jumps = {
            words[words.index("-j") + 1] for line in text.splitlines() if "-j" in (words := line.split())
        }
        self.assertFalse(jumps - declared - {"ACCEPT", "DROP", "RETURN", "MARK", "MASQUERADE", "DNAT"})
        self.assertEqual(text.count("-j DNAT"), 5 * 12)

    def test_endpoints_are_equally_likely(self):
        text = contestant(iptables.IptablesNft, 1).everything()
        chances = [
            float(line.split("--probability ")[1].split()[0])
            for line in text.splitlines()
            if "--prob" in line
        ]
        self.assertEqual(chances, [round(1 / left, 10) for left in range(12, 1, -1)])

    def test_comments_end_where_kube_proxy_ends_them(self):
        for size, there in ((10, True), (1000, False)):
            one = contestant(iptables.IptablesNft, size)
            self.assertEqual("--comment" in one.everything(), there)

    def test_a_change_keeps_every_service_and_takes_the_old_endpoint_away(self):
        one = contestant(iptables.IptablesNft, 100)
        old = one.load.middle
        text = one.prepare(old, old.with_last(one.load.pods[-1]))
        self.assertEqual(text.count("-A KUBE-SERVICES"), 100 + 1)
        self.assertEqual(text.count("-j DNAT"), 12)
        self.assertIn(f"-X {iptables.endpoint_chain(old, old.endpoints[-1])}\n", text)

    def test_who_is_not_dialled_can_be_hollow(self):
        text = contestant(iptables.IptablesNft, 100, hollow=True).everything()
        self.assertEqual(text.count("-A KUBE-SERVICES"), 100 + 1)
        self.assertEqual(text.count("-j DNAT"), 3 * 12)


class Ipvs(unittest.TestCase):
    def test_a_virtual_server_each_and_its_endpoints(self):
        text = contestant(ipvs.Ipvs, 100).everything()
        self.assertEqual((text.count("-A -t 10."), text.count(" -m -w 1\n")), (100, 100 * 12))

    def test_a_change_adds_before_it_removes(self):
        one = contestant(ipvs.Ipvs, 10)
        old, pod = one.load.middle, one.load.pods[-1]
        come, gone = one.prepare(old, old.with_last(pod)).splitlines()
        self.assertTrue(come.startswith(f"-a -t {old.vip}:") and f" -r {pod}:" in come)
        self.assertTrue(gone.startswith(f"-d -t {old.vip}:") and f" -r {old.endpoints[-1]}:" in gone)


class Nftables(unittest.TestCase):
    def test_one_element_a_service_and_one_chain_an_endpoint(self):
        one = contestant(nftables.Nftables, 100)
        text = one.everything()
        self.assertEqual(text.count("kube-proxy service-ips { 10."), 100)
        self.assertEqual(text.count("dnat to"), 100 * 12)
        hollow = contestant(nftables.Nftables, 100, hollow=True).everything()
        self.assertEqual(hollow.count("kube-proxy service-ips { 10."), 100)
        self.assertEqual(hollow.count("dnat to"), 3 * 12)

    def test_a_change_writes_one_service(self):
        one = contestant(nftables.Nftables, 100)
        old = one.load.middle
        text = one.prepare(old, old.with_last(one.load.pods[-1]))
        self.assertEqual(text.count("numgen"), 1)
        self.assertEqual(text.count("dnat to"), 1)
        self.assertIn(f"delete chain ip kube-proxy {nftables.endpoint_chain(old, old.endpoints[-1])}\n", text)


class KubeProxy(unittest.TestCase):
    def test_without_its_programs_it_says_how_to_build_them(self):
        for kind in (kubeproxy.KubeProxyNftables, kubeproxy.KubeProxyIptables):
            self.assertIn("make test-kube builds it", kind.missing(Places(kube="/nowhere")))

    def test_more_services_than_an_api_server_takes_are_refused_at_once(self):
        one = contestant(kubeproxy.KubeProxyNftables, Plan.most_written + 1)
        with self.assertRaisesRegex(LabError, "is given more than"):
            one.fill()
        one.close()

    def test_goals_know_them(self):
        self.assertIn(kubeproxy.KubeProxyNftables.name, goals.NFTABLES)
        self.assertIn(kubeproxy.KubeProxyIptables.name, goals.IPTABLES)

    def test_the_api_server_may_give_every_service_its_address(self):
        network = ipaddress.ip_network(controlplane.addresses.SERVICE_NETWORKS[0])
        # The first one is that of the API server itself.
        free = set(map(str, list(network.hosts())[1:]))
        self.assertFalse({service.vip for service in Workload(max(Plan.sizes), 1).services} - free)


class FakeApi:
    """Keeps what is created."""

    def __init__(self):
        self.made = []

    def create(self, thing):
        self.made.append(thing)

    def each(self, function, things):
        return [function(thing) for thing in things]


class ControlPlane(unittest.TestCase):
    def plane(self):
        """One that has not been started."""
        plane = controlplane.Plane.__new__(controlplane.Plane)
        plane._plane = SimpleNamespace(api=FakeApi())
        return plane

    def test_the_namespace_comes_first_and_a_service_before_its_endpoints(self):
        plane = self.plane()
        plane.load([["s1", "e1"], ["s2", "e2"]], limit=60)
        first, *others = plane._plane.api.made
        self.assertEqual(first["metadata"]["name"], objects.workload.NAMESPACE)
        self.assertEqual(others, ["s1", "e1", "s2", "e2"])

    def test_loading_ends_with_its_time(self):
        with self.assertRaisesRegex(TooSlow, "has not taken 2 Services"):
            self.plane().load([["s1"], ["s2"]], limit=-1)

    def test_its_failures_are_told_as_ours(self):
        with self.assertRaisesRegex(LabError, "control plane: no"):
            with controlplane.told():
                raise controlplane.Failure("no")


class Objects(unittest.TestCase):
    def test_a_slice_belongs_to_its_service(self):
        service = Workload(1, 2).first
        made = objects.endpoint_slice(service)
        self.assertEqual(made["metadata"]["labels"]["kubernetes.io/service-name"], service.name)
        self.assertEqual([each["addresses"] for each in made["endpoints"]], [[a] for a in service.endpoints])


class Figures(unittest.TestCase):
    def test_cost_is_above_one_for_whoever_is_slower(self):
        slow, quick = results(20, 20, 40), results(10, 10, 20)
        for figure in (figures.RATE, figures.SHORT[0]):
            self.assertEqual(figure.cost(slow, quick).median, 2)
            self.assertEqual(figure.cost(quick, slow).median, 0.5)

    def test_quartiles(self):
        spread = figures.Spread.of([1, 2, 3, 4, 5])
        self.assertEqual((spread.median, spread.low, spread.high, spread.count), (3, 2, 4, 5))
        self.assertEqual(figures.Spread.of([7]).high, 7)
        self.assertIsNone(figures.Spread.of([]))


class Goals(unittest.TestCase):
    def words(self, sizes):
        return [verdict.word for verdict in goals.verdicts(sizes)]

    def test_reached(self):
        sizes = {
            size: {
                "direct": results(100),
                "sidestep": results(102),
                "nftables": results(110),
                "iptables-nft": results(120),
            }
            for size in (1, 1000)
        }
        self.assertEqual(self.words(sizes), ["reached"] * 5)

    def test_missed(self):
        one = {"direct": results(100), "sidestep": results(104, seen=0.02), "nftables": results(103)}
        self.assertEqual(
            self.words({1000: one}), ["missed", "not measured", "not measured", "missed", "missed"]
        )

    def test_who_was_not_measured_is_no_reason(self):
        self.assertEqual(self.words({1: {"direct": results(100)}}), ["not measured"] * 5)


class Tables(unittest.TestCase):
    sizes = {size: {kind.name: results(10, 20, 30) for kind in ALL} for size in (1, 1000)}

    def test_each_contestant_has_a_line_at_each_size(self):
        absent = {("nftables", 10): "too slow\nand more"}
        text = report.markdown(self.sizes, absent, Plan(), MACHINE)
        for kind in ALL:
            self.assertEqual(text.count(f"| 1,000 | {kind.title} | 50,000 |"), 1)
        self.assertIn("nftables at 10 Services: too slow\n", text)

    def test_a_load_that_took_too_long_says_so(self):
        hollow = Results(hollow=True, changes=[Change(1, 2)], short=[answer(10)], keep=[answer(10)])
        text = report.markdown({10: {"nftables": hollow}}, {}, Plan(), MACHINE)
        self.assertIn("| over 120,000 | at least 1,000 (1,000-1,000) |", text)

    def test_programs_are_shown_where_there_are_any(self):
        self.assertNotIn("Inside", report.markdown(self.sizes, {}, Plan(), MACHINE))
        own = results(10)
        own.programs = [Program("connect4", 1.0, 400.0)]
        self.assertIn(
            "| 1 | connect4 | 1 | 400 |", report.markdown({1: {"sidestep": own}}, {}, Plan(), MACHINE)
        )

    def test_tables_are_made_again_from_the_figures(self):
        made = report.as_json(self.sizes, {("nftables", 10): "why"}, Plan(), MACHINE)
        again = report.from_json(json.loads(json.dumps(made)))
        first = report.markdown(self.sizes, {("nftables", 10): "why"}, Plan(), MACHINE)
        self.assertEqual(report.markdown(*again), first)

    def test_the_picture_is_xml_with_a_line_for_each(self):
        result = report.as_json(self.sizes, {}, Plan(), MACHINE)
        picture = xml.fromstring(plot.picture(result))
        lines = picture.findall(".//{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), len(plot.PANELS) * len(ALL))

    def test_only_the_marked_part_of_the_page_changes(self):
        kept = f"b\n{main.WRITE_KUBE}\nkept\n{page.END}\n"
        text = f"a\n{main.WRITE}\nold\n{page.END}\n{kept}"
        self.assertEqual(
            page.within(text, main.WRITE, "new"), f"a\n{main.WRITE}\n\nnew\n{page.END}\n{kept}"
        )


if __name__ == "__main__":
    unittest.main()
