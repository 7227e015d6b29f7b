"""Random Services, round by round: which backends answer at each of their addresses, in each world."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from kube import probes as asking
from kube.differences import DIFFERENCES, SIDESTEP, difference_of, expected_by
from kube.marker import Marker
from kube.state import State
from testkit.console import say

ROUNDS, QUICK_ROUNDS = 6, 2
SERVICES, QUICK_SERVICES = 45, 25


def run(testbed, options, checks):
    state = State(testbed.control_plane.api, random.Random(options.seed))
    # Probes have their own random numbers, so that a new kind of probe does not change the Services.
    choices = random.Random(options.seed)
    marker = Marker(testbed.control_plane.api, "semantics-marker")
    explained = Counter()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    for number in range(rounds):
        if number:
            state.change()
        state.fill(QUICK_SERVICES if options.quick else SERVICES)
        took = marker.wait(testbed.worlds)
        pairs = asking.of_all(state.specs, choices)
        before = len(checks.failures)
        compare(testbed, pairs, state.specs, checks, explained)
        times = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in sorted(took.items()))
        say(f"semantics: round {number + 1}/{rounds}: {len(state.specs)} Services, {len(pairs)} probes, "
            f"{len(checks.failures) - before} failed; changes seen after {times}")
    checks.figures["differences"] = dict(explained)
    for difference in DIFFERENCES:
        say(f"semantics: {explained[difference.name]:4} probes differ as explained: {difference.name}")


def compare(testbed, pairs, specs, checks, explained):
    """Every probe in every world at once; one check per probe, and one per group with affinity in each world."""
    requests = {who: [pair for pair in pairs if pair[0].who == who] for who in asking.ASKERS}
    keys = [(world, who) for world in testbed.worlds for who in requests]
    with ThreadPoolExecutor(len(keys)) as threads:
        waiting = {key: threads.submit(ask, *key, requests[key[1]], checks) for key in keys}
    answers = {(world.kind, who): future.result() for (world, who), future in waiting.items()}
    for who, asked in requests.items():
        for i, (probe, says) in enumerate(asked):
            seen = {world.kind: answers[world.kind, who][i] for world in testbed.worlds}
            compare_one(probe, says, seen, specs, checks, explained)
    for kind, who in answers:
        compare_affinity(kind, zip(requests[who], answers[kind, who]), checks)


def ask(world, who, asked, checks):
    """The results of the probes. kube-proxy is probed again after an unexpected result: conntrack sometimes has an old
    entry for a source port that is used again. Sidestep gets no second try."""
    answers = probe(world, who, asked)
    if world.kind == SIDESTEP:
        return answers
    strange = [i for i, (probe, says) in enumerate(asked)
               if not is_as_wanted(answers[i], *expected_by(world.kind, probe, says))]
    for i, again in zip(strange, probe(world, who, [asked[i] for i in strange])):
        answers[i] = again
    name = f"{world.kind}: probes asked again"
    checks.figures[name] = checks.figures.get(name, 0) + len(strange)
    return answers


def probe(world, who, asked):
    answers = world.probe(who, [asking.as_request(*pair) for pair in asked])
    return [asking.in_words(one, answer) for (one, _), answer in zip(asked, answers)]


def compare_one(probe, says, seen, specs, checks, explained):
    wanted = {kind: expected_by(kind, probe, says) for kind in seen}
    wrong = [kind for kind in seen if not is_as_wanted(seen[kind], *wanted[kind])]
    difference = difference_of(probe, says)
    if difference and not wrong and not seen.keys().isdisjoint(difference.seen):
        explained[difference.name] += 1
    checks.check(not wrong, lambda: tell(probe, says, seen, wanted, wrong, specs))


def is_as_wanted(outcomes, words, is_sticky):
    """All backends answer, and no others; with affinity always the same one."""
    if is_sticky:
        return len(outcomes) == 1 and set(outcomes) <= words
    return set(outcomes) == words


def compare_affinity(kind, asked, checks):
    """A client keeps its backend whichever address of the port it uses, as far as the same backends are behind it."""
    groups = {}
    for (probe, says), outcomes in asked:
        # At these addresses the client has another source address.
        is_other_client = probe.place in ("loopback", "second")
        if says.sticky and probe.is_service and not probe.filtered and not is_other_client and len(outcomes) == 1:
            groups.setdefault((probe.who, probe.group), {}).setdefault(backend_of(outcomes), []).append(probe)
    for (who, _), answers in groups.items():
        checks.check(len(answers) == 1, lambda who=who, answers=answers: "\n     ".join(
            [f"{kind}: one client ({who}) has several backends of one port with affinity:",
             *(f"{backend} at {probe}" for backend, probes in answers.items() for probe in probes)]))


def backend_of(outcomes):
    """The only one, without the source that it saw: that depends on the address that the client used."""
    return next(iter(outcomes)).split()[0]


def tell(probe, says, seen, wanted, wrong, specs):
    """Everything that is needed to find the cause."""
    lines = [f"{probe}", f"by the API: {says.verdict}{' with affinity' if says.sticky else ''}"]
    for kind in seen:
        lines.append(f"{'!!' if kind in wrong else 'ok'} {kind}: saw {' '.join(sorted(seen[kind]))}; "
                     f"expected {' '.join(sorted(wanted[kind][0]))}")
    if probe.name in specs:
        service, slices = specs[probe.name]
        lines.append(f"service: {service['spec']}")
        lines += [f"slice: {piece['addressType']} {piece['ports']} {piece.get('endpoints')}" for piece in slices]
    return "\n     ".join(lines)
