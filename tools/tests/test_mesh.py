"""Rules, configurations, comparisons and tables of tools/lab/mesh. Run: python3 -m unittest discover -s tools/tests"""

import itertools
import json
import random
import sys
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.mesh import compare, envoy, figures, goals, main, meter, plot, profile, proof, report, rules  # noqa: E402
from lab.mesh.certificates import Papers  # noqa: E402
from lab.mesh.contestants import ALL  # noqa: E402
from lab.mesh.plan import LOADS, Cell, Plan  # noqa: E402
from lab.mesh.rounds import Results  # noqa: E402
from lab.mesh.settings import CAPTURE, FRESH, PORTS, VIP, identity  # noqa: E402
from lab.places import Places  # noqa: E402

MACHINE = {
    "cores": 2,
    "cpu": "a processor",
    "kernel": "6.0",
    "programs": {"envoy": "1.40.0"},
    "load_before": (0.5, 0, 0),
    "load": (1.0, 0, 0),
}
KINDS = {kind.name: kind for kind in ALL}
SHARES = ("p5", "p25", "p50", "p75", "p90", "p95", "p99", "p999", "mean", "max")


def turn(microseconds):
    return {
        "seconds": 1.0,
        "answered": 1000,
        "unanswered": 0,
        "failed": 0,
        "latency_us": dict.fromkeys(SHARES, microseconds),
        "cpu": {
            "machine": 1.0,
            "programs": 0.5,
            "highest": 0.9,
            "request_us": {"client-app": microseconds},
            "kernel_us": {"client-app": microseconds / 2},
        },
    }


def results(cells, **names):
    """Contestants by name ("_" for "+" and "-"), each with the times of its rounds."""
    made = Results()
    known = {name.replace("+", "_").replace("-", "_"): name for name in KINDS}
    for cell, (name, times) in itertools.product(cells, names.items()):
        made.turns[cell, known[name]] = [turn(each) for each in times]
    return made


def around(middle, rounds=12):
    """Times with a drift that all contestants share."""
    return [middle * (1 + number / 10) for number in range(rounds)]


class ThePlan(unittest.TestCase):
    def test_some_take_part_in_all_cells_and_all_in_some(self):
        plan, few, full = Plan(), Cell(0, "1000", 1), Cell(0, "1000", Plan.full)
        self.assertTrue(all(plan.takes_part(kind, full) for kind in ALL))
        main = {kind.name for kind in ALL if plan.takes_part(kind, few)}
        judged = {goals.CAPTURE, goals.RINGS, goals.IPTABLES, goals.BYPASS, goals.NONE}
        self.assertEqual(main, judged)
        # Enough for an interval.
        for cell in (few, full):
            self.assertIsNotNone(compare.depth(plan.rounds_of(cell), plan.confidence))

    def test_each_load_is_put_on_each_number_of_connections(self):
        names = [cell.name for cell in Plan().cells(0)]
        self.assertEqual(len(names), len(set(names)))
        for load in LOADS:
            count = 1 if load.connections else len(Plan.connections)
            self.assertEqual(sum(f"/{load.name}/" in name for name in names), count)

    def test_cells_are_chosen_by_patterns(self):
        plan = Plan(only=("0/1000/*", "*/max/64"))
        self.assertEqual(len(plan.cells(0)), len(Plan.connections) + 1)
        self.assertEqual([cell.name for cell in plan.cells(100_000)], ["100000/max/64"])


class Rules(unittest.TestCase):
    def test_every_chain_that_is_jumped_to_is_declared(self):
        nodes = (rules.node(3, walk, "10.0.0.2", True) for walk in rules.WALKS)
        for text in (rules.capture(), *nodes):
            lines = text.splitlines()
            declared = {line[1:].split()[0] for line in lines if line.startswith(":")}
            jumps = {line.split("-j ")[1].split()[0] for line in lines if "-j " in line}
            self.assertFalse(jumps - declared - {"RETURN", "REDIRECT", "ACCEPT", "DROP", "MARK", "MASQUERADE", "DNAT"})

    def test_the_sidecars_own_traffic_is_left_alone_and_all_other_led(self):
        output = [line for line in rules.capture().splitlines() if line.startswith("-A ISTIO_OUTPUT ")]
        self.assertIn(f"-A ISTIO_OUTPUT -m owner --uid-owner {CAPTURE.user} -j RETURN", output)
        self.assertIn(f"-A ISTIO_OUTPUT -m owner --gid-owner {CAPTURE.group} -j RETURN", output)
        self.assertEqual(output[-1], "-A ISTIO_OUTPUT -j ISTIO_REDIRECT")

    def test_ports_are_excluded_before_all_others_are_led(self):
        inbound = [line for line in rules.capture().splitlines() if line.startswith("-A ISTIO_INBOUND")]
        self.assertEqual(inbound[-1], "-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT")
        for port in CAPTURE.not_inbound:
            self.assertIn(f"-A ISTIO_INBOUND -p tcp --dport {port} -j RETURN", inbound[:-1])

    def test_the_node_has_as_many_as_asked_for_each_another(self):
        for walk, chain in (("packet", "-A MANY"), ("services", "-A KUBE-SERVICES")):
            text = rules.node(70_000, walk, "10.0.0.2", True)
            many = [line for line in text.splitlines() if line.startswith(chain) and " -d 198." in line]
            self.assertEqual((len(many), len(set(many))), (70_000, 70_000))

    def test_the_service_that_is_dialled_is_the_last_of_all(self):
        lines = rules.node(9, "services", "10.0.0.2", True).splitlines()
        last = [line for line in lines if line.startswith("-A KUBE-SERVICES")][-len(PORTS) :]
        self.assertTrue(all(f"-d {VIP}/32" in line and "-j KUBE-SVC-" in line for line in last))

    def test_without_a_kube_proxy_only_a_firewalls_rules_stay(self):
        self.assertEqual(rules.node(9, "services", "10.0.0.2", False), "")
        self.assertNotIn("KUBE", rules.node(9, "packet", "10.0.0.2", False))
        self.assertIn("-A MANY", rules.node(9, "packet", "10.0.0.2", False))

    def test_known_connections_look_through_them_only_if_every_packet_does(self):
        self.assertIn("ESTABLISHED", rules.node(1, "connection", "10.0.0.2", True))
        self.assertNotIn("ESTABLISHED", rules.node(1, "packet", "10.0.0.2", True))


class Configuration(unittest.TestCase):
    papers = Papers(*map(Path, ("authority", "certificate", "key")))

    def test_the_client_believes_the_server_only(self):
        text = json.dumps(envoy.client("10.0.0.2", self.papers, "admin", Plan()))
        self.assertIn(f'"exact": "{identity("server")}"', text)
        self.assertIn('"use_original_dst": true', text)

    def test_the_server_lets_the_client_in_only_with_a_certificate(self):
        made = envoy.server(self.papers, "admin", Plan())
        (listener,) = made["static_resources"]["listeners"]
        for chain in listener["filter_chains"]:
            self.assertTrue(chain["transport_socket"]["typed_config"]["require_client_certificate"])
            self.assertIn(f'"exact": "{identity("client")}"', json.dumps(chain["filters"]))

    def test_both_give_up_after_the_same_time(self):
        for made in (envoy.client("10.0.0.2", self.papers, "a", Plan()), envoy.server(self.papers, "a", Plan())):
            self.assertIn('"timeout": "2.0s"', json.dumps(made))

    def test_connections_carry_as_many_requests_as_planned_or_one(self):
        for made in (envoy.client("10.0.0.2", self.papers, "a", Plan()), envoy.server(self.papers, "a", Plan())):
            clusters = {each["name"]: json.dumps(each) for each in made["static_resources"]["clusters"]}
            for name in (name for name in clusters if name != "passthrough"):
                most = 1 if name.endswith(str(FRESH)) else Plan.requests
                self.assertIn(f'"max_requests_per_connection": {most}}}', clusters[name])
        self.assertEqual(envoy.carries(0, Plan(requests=0)).keys(), envoy.carries(0, Plan()).keys())


class Contestants(unittest.TestCase):
    def test_who_lacks_a_program_says_so(self):
        nowhere = Places(release="/nowhere")
        for kind in ALL:
            if "iptables" not in kind.name and kind.name != "none":
                self.assertIn("/nowhere", kind.missing(nowhere), kind.name)

    def test_who_lacks_a_command_says_which(self):
        with mock.patch.object(Path, "exists", return_value=True):
            with mock.patch("subprocess.run", return_value=mock.Mock(returncode=2)):
                self.assertIn("no command 'capture'", KINDS["capture"].missing(Places()))

    def test_the_goals_know_them(self):
        wanted = {goals.CAPTURE, goals.RINGS, goals.IPTABLES, goals.AGAIN, goals.BYPASS, goals.NONE}
        self.assertFalse(wanted - set(KINDS))
        self.assertFalse({*report.AGAINST, *itertools.chain(*report.AGAINST.values())} - set(KINDS))


class Proofs(unittest.TestCase):
    def counted(self, through, allowed, handshakes):
        sidecars = {"client's sidecar": through, "server's sidecar": through, "allowed": allowed, "denied": 0}
        return sidecars | {"handshakes": handshakes, "handshakes of the client's": handshakes}

    def wrong(self, kind, counts, failed=0, **moved):
        return proof.wrong(proof.Proof(100, counts, moved), KINDS[kind], failed)

    def test_requests_must_take_the_way(self):
        self.assertIsNone(self.wrong("iptables", self.counted(100, 100, 4)))
        self.assertIn("both sidecars", self.wrong("iptables", self.counted(0, 0, 0)))
        self.assertIn("both sidecars", self.wrong("iptables", self.counted(100, 99, 4)))
        self.assertIn("no mTLS", self.wrong("iptables", self.counted(100, 100, 0)))
        self.assertIn("failed", self.wrong("iptables", self.counted(100, 100, 4), failed=1))

    def test_a_bypass_must_pass_by(self):
        self.assertIsNone(self.wrong("bypass", self.counted(0, 0, 0)))
        self.assertIn("both sidecars", self.wrong("bypass", self.counted(100, 100, 4)))

    def test_rings_must_be_used(self):
        self.assertIsNone(self.wrong("iptables+rings", self.counted(100, 100, 4), ring=1))
        self.assertIn("ring", self.wrong("iptables+rings", self.counted(100, 100, 4), ring=0))

    def test_splicing_must_be_used_in_both_pods(self):
        self.assertIsNone(self.wrong("capture+splice", self.counted(100, 100, 4), client=1, server=1))
        self.assertIn("server", self.wrong("capture+splice", self.counted(100, 100, 4), client=1, server=0))

    def test_without_sidecars_there_is_nothing_to_ask(self):
        self.assertIsNone(self.wrong("none", {}))


class TheMeter(unittest.TestCase):
    def test_idle_time_is_that_of_each_processor(self):
        text = "cpu  9 9 9 9 9\ncpu0 1 0 1 300 100 0\ncpu1 1 0 1 500 100 0\nintr 5\n"
        self.assertEqual(meter.idle(text), (1000 / meter.TICKS, 2))


class Comparing(unittest.TestCase):
    def word(self, own, other, better="lower", confidence=0.99):
        return compare.compare(own, other, better, confidence).word

    def test_a_difference_in_every_round_is_one_whatever_the_drift(self):
        slow, quick = around(110), around(100)
        self.assertEqual(self.word(quick, slow), "better")
        self.assertEqual(self.word(slow, quick), "worse")
        self.assertEqual(self.word(slow, quick, "higher"), "better")
        self.assertAlmostEqual(compare.compare(slow, quick, "lower", 0.99).ratio, 1.1)

    def test_the_same_is_no_difference(self):
        self.assertEqual(self.word(around(100), around(100)), "no difference")

    def test_one_disturbed_round_is_not_a_difference(self):
        self.assertEqual(self.word([100] * 11 + [900], [100] * 12), "no difference")

    def test_a_round_that_one_of_them_lacks_does_not_count(self):
        whole, lacking = [100] * 9, [50] * 8 + [None]
        self.assertEqual(compare.compare(lacking, whole, "lower", 0.99).ratio, 0.5)
        self.assertEqual(self.word(lacking[1:], whole[1:]), "too few rounds")

    def test_few_rounds_say_nothing(self):
        self.assertEqual(self.word([50] * 7, [100] * 7), "too few rounds")
        self.assertEqual(self.word([50] * 8, [100] * 8), "better")
        self.assertIsNone(compare.compare([], [], "lower", 0.99))

    def test_the_interval_is_that_of_the_tables(self):
        # Critical values of Wilcoxon's signed ranks, two-sided: 5 %: n=10 8, n=20 52; 1 %: n=12 7.
        self.assertEqual([compare.depth(10, 0.95), compare.depth(20, 0.95), compare.depth(12, 0.99)], [8, 52, 7])
        self.assertIsNone(compare.depth(5, 0.95))

    def test_equals_are_told_apart_as_seldom_as_promised(self):
        chance, wrong, tries = random.Random(1), 0, 400
        for _ in range(tries):
            own, other = ([chance.lognormvariate(0, 0.3) for _ in range(12)] for _ in range(2))
            wrong += self.word(own, other, confidence=0.9) != "no difference"
        self.assertLess(wrong / tries, 0.15)
        self.assertGreater(wrong / tries, 0.05)


class Goals(unittest.TestCase):
    cells = (Cell(0, "1000", 64), Cell(100_000, "1000", 64))

    def words(self, **times):
        return [verdict.word for verdict in goals.verdicts(results(self.cells, **times), Plan())]

    def test_reached(self):
        times = {"iptables": 100, "capture": 95, "capture_services": 90, "capture_rings": 65, "none": 20, "bypass": 20.5}
        self.assertEqual(self.words(**{name: around(each) for name, each in times.items()}), ["reached"] * 5)

    def test_missed(self):
        times = {"iptables": 100, "capture": 101, "capture_services": 100, "capture_rings": 75, "none": 20, "bypass": 22}
        self.assertEqual(self.words(**{name: around(each) for name, each in times.items()}), ["missed"] * 5)

    def test_an_interval_that_is_too_wide_leaves_a_goal_open(self):
        wide = [100 * (3 if number % 2 else 1 / 3) for number in range(12)]
        self.assertEqual(self.words(iptables=[100] * 12, capture=wide)[0], "open")
        either = [20 if number % 2 else 150 for number in range(12)]
        self.assertEqual(self.words(iptables=[100] * 12, capture_rings=either)[3], "open")

    def test_who_goes_round_idle_sidecars_does_not_pay_for_them(self):
        made = results(self.cells, none=around(20), bypass=around(20))
        for cell in self.cells:
            for each in made.of(cell, "bypass"):
                each["cpu"]["request_us"]["client-proxy"] = 10
        self.assertEqual(goals.verdicts(made, Plan())[4].word, "reached")

    def test_farther_than_the_limit_by_chance_is_open(self):
        either = [20 if number % 2 else 30 for number in range(12)]
        self.assertEqual(self.words(none=[20] * 12, bypass=either)[4], "open")

    def test_no_difference_is_not_slower_and_not_ahead(self):
        same = self.words(iptables=around(100), capture=around(100), capture_services=around(100))
        self.assertEqual(same[:3], ["reached", "missed", "reached"])

    def test_of_few_rounds_they_are_open(self):
        few = {"iptables": [100], "capture": [90], "capture_services": [80]}
        self.assertEqual(self.words(**few), ["open", "open", "open", "not measured", "not measured"])

    def test_the_control_counts_what_it_finds(self):
        same = results(self.cells, iptables=around(100), iptables_again=around(100))
        count = sum(len(figures.compared(cell)) for cell in self.cells)
        self.assertEqual(goals.control(same, Plan()), (0, count))
        other = results(self.cells, iptables=around(100), iptables_again=around(120))
        self.assertGreater(goals.control(other, Plan())[0], 0)


class Tables(unittest.TestCase):
    cells = (Cell(0, "1000", 1), Cell(0, "max", 64))

    def results(self):
        times = {name.replace("+", "_").replace("-", "_"): around(100) for name in KINDS}
        made = results(self.cells, **times)
        made.proofs[0, "iptables"] = proof.Proof(10, dict.fromkeys(proof.COUNTERS, 10), {"by ring": 7})
        made.absent["capture+splice", None] = "no such command\nand more"
        return made

    def test_each_contestant_has_a_line_in_each_cell(self):
        text = report.markdown(self.results(), Plan(), MACHINE)
        for kind in ALL:
            self.assertEqual(text.count(f"| 0 | saturation | 64 | {kind.title} | 1,000 |"), 1)
        self.assertIn(f"- {KINDS['capture+splice'].title}: no such command\n", text)

    def test_with_rules_the_difference_is_shared_out(self):
        times = {"iptables": around(100), "capture": around(90), "capture_services": around(45)}
        text = report.markdown(results((Cell(9, "1000", 64),), **times), Plan(), MACHINE)
        for part, change in (("steering", "-10.0%"), ("no rules of kube-proxy", "-50.0%"), ("both", "-55.0%")):
            (line,) = [line for line in text.splitlines() if line.startswith(f"| 9 | 1,000/s | 64 | {part} |")]
            self.assertIn(f"**better** {change}", line)

    def test_what_is_late_is_said(self):
        made = self.results()
        made.of(self.cells[0], "iptables")[0]["unanswered"] = 7
        self.assertIn("1,000 (7 late)", report.markdown(made, Plan(), MACHINE))

    def test_a_turn_that_failed_is_said_and_loses_no_other(self):
        made = self.results()
        made.of(self.cells[0], "iptables")[0] = None
        made.of(self.cells[1], "capture")[:] = [None] * 12
        made.failures.append(("iptables", "0/1000/1", 1, "does not\nanswer"))
        text = report.markdown(made, Plan(), MACHINE)
        self.assertIn("- iptables, 0/1000/1, round 1: does not answer\n", text)
        self.assertNotIn("| 0 | saturation | 64 | Sidestep capture |", text)
        xml.fromstring(plot.picture(report.as_json(made, Plan(), MACHINE)))

    def test_tables_are_made_again_from_the_figures(self):
        made = report.as_json(self.results(), Plan(), MACHINE)
        again = report.from_json(json.loads(json.dumps(made)))
        self.assertEqual(report.markdown(*again), report.markdown(self.results(), Plan(), MACHINE))

    def test_every_pair_is_compared_in_the_figures(self):
        made = report.as_json(self.results(), Plan(), MACHINE)
        pairs = {(each["who"], each["against"]) for each in made["comparisons"]}
        self.assertEqual(len(pairs), len(ALL) * (len(ALL) - 1))

    def test_the_picture_is_xml_with_a_box_for_each(self):
        made = report.as_json(self.results(), Plan(), MACHINE)
        picture = xml.fromstring(plot.picture(made))
        means = [each for each in picture.iter() if each.get("class") == "mean"]
        self.assertEqual(len(means), len(self.cells) * len(ALL))


class TheProfile(unittest.TestCase):
    def test_shares_are_read_with_and_without_children(self):
        flat = "# Overhead  Shared Object\n    67.63%  envoy            \n     0.32%  [vdso]\n\n"
        self.assertEqual(profile.shares(flat), {"envoy": 67.63, "[vdso]": 0.32})
        nested = "    18.91%     0.32%  [k] tcp_sendmsg              -      -            \n"
        self.assertEqual(profile.shares(nested), {"[k] tcp_sendmsg": 18.91})


class TheCommand(unittest.TestCase):
    def test_options_change_the_plan(self):
        plan = main.parse(["--rounds", "3", "--seconds", "0.5", "--only", "0/*/16", "--rules", "9,0"]).plan
        self.assertEqual((plan.rounds, plan.seconds, plan.only, plan.rules), (3, 0.5, ("0/*/16",), (0, 9)))

    def check(self, made):
        options = main.parse(["--who", "iptables,capture", "--rules", "0"])
        with mock.patch("builtins.print") as said:
            return main.checked(made, options), said.call_args.args[0]

    def test_who_loses_requests_or_does_not_take_part_fails_the_check(self):
        made = results((Cell(0, "1000", 1),), iptables=around(100), capture=around(100))
        self.assertEqual(self.check(made), (0, "mesh: 2 passed, 0 failed"))
        made.of(Cell(0, "1000", 1), "capture")[3]["unanswered"] = 1
        self.assertEqual(self.check(made), (1, "mesh: 1 passed, 1 failed"))
        made.absent["iptables", 0] = "no reason"
        self.assertEqual(self.check(made), (1, "mesh: 0 passed, 2 failed"))

    def test_mistakes_are_refused(self):
        for words in (["--who", "nobody"], ["--only", "5/1000/1"], ["--rounds", "0"]):
            with mock.patch("sys.stderr"), self.assertRaises(SystemExit):
                main.parse(words)


if __name__ == "__main__":
    unittest.main()
