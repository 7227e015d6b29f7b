"""The chart: rendered with many values, compared with Kubernetes' schemas, the units and the programs."""

import base64
import functools
import json
import re
import shutil
import tempfile
import time
from pathlib import Path

from testkit.commands import run
from testkit.failure import Failure, check
from testkit.paths import ROOT

CHART = ROOT / "dist" / "chart" / "sidestep"
HELM = ROOT / "target" / "lab-tools" / "bin" / "helm"
PYTHON = ROOT / "target" / "venv" / "bin" / "python"
ALL = ("cni.enabled=true", "cni.repair=label", "agent.removeTaint=true", "agent.arm=true", "agent.watch=true", "agent.networkPolicies=true", "agent.exempt={a,b}",
       "agent.nodePortAddresses={192.0.2.0/24,fd00::/64}", "agent.apiServer.host=192.0.2.1", "services.replaceKubeProxy=true", "services.clusterCIDR={10.244.0.0/16,fd00:244::/56}", "nri.namespaces={shop,web}",
       "metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true", "metrics.dashboard.enabled=true",
       "image.digest=sha256:" + 64 * "a", "imagePullSecrets[0].name=secret", "podLabels.team=net")
WEBHOOK = ("injection=webhook", "metrics.serviceMonitor.enabled=true", "webhook.podSecurityDefault=baseline", "webhook.replicas=3",
           "agent.apiServer.host=192.0.2.1")
OWN_CERTIFICATE = ("injection=webhook", "webhook.certificate.secret=own", "webhook.certificate.authority=-----BEGIN CERTIFICATE-----")
LEAST = ("nri.enabled=false", "rbac.create=false", "serviceAccount.create=false", "uninstall.enabled=false")
GOOD = [(), ALL, LEAST, WEBHOOK, OWN_CERTIFICATE, ("injection=webhook",), ("metrics.address=127.0.0.1",), ("metrics.address=[::]",), ("fullnameOverride=other",),
        ("hostPaths.run=/var/lib/sidestep",), ("agent.documents.a\\.yaml=kind: Policy",), ("updateStrategy.type=OnDelete", "updateStrategy.rollingUpdate=null")]
# Others have more than Sidestep there.
NOT_OURS = ("/run", "/run/", "/var/lib", "/var/run", "/run/..", "/run//sidestep", "/run/containerd", "/var/run/nri", "/var/lib/kubelet",
            "/sys/fs/bpf")
BAD = ["cni.repair=mend", "logFormat=xml", "injection=csi", "webhook.replicas=0", "webhook.podSecurityDefault=none", "webhook.certificate.secret=own",
       "webhook.certificate.authority=x", "agent.armed=true", "agent.arm=maybe", "metrics.port=0", "metrics.port=70000", "image.digest=latest", "image.pullPolicy=Sometimes",
       "hostPaths.bpf=relative", "hostPaths.run=/run/a:b", *(f"hostPaths.run={place}" for place in NOT_OURS),
       "nri.namespaces={UPPER}", "agent.nodePortAddresses={somewhere}",
       "services.replaceKubeProxy=1", "services.enabled=no-thanks", "services.clusterCIDR={pods}",
       "agent.documents.a\\.txt=x", "metrics.address=fd00::1", "uninstall.timeoutSeconds=1", "appArmorProfile=none", "nosuch=1"]


def helm(*words):
    check(HELM.exists(), f"no {HELM}: run tools/install-deps chart")
    return run(HELM, *words, seconds=60)


def template(values=(), *more, chart=CHART):
    settings = [word for value in values for word in ("--set", value)]
    return helm("template", "sidestep", chart, "--namespace", "net", "--kube-version", "1.36.0", *settings, *more)


def documents(text):
    """Validated."""
    return json.loads(run(PYTHON, ROOT / "tests" / "packages" / "peers" / "validate.py", stdin=text, seconds=60))


@functools.cache
def rendered(values=()):
    return documents(template(values))


def of_kind(values, kind):
    """Without those that take the place of others when the chart is removed."""
    return [document for document in rendered(values) if document["kind"] == kind and not is_hook(document)]


def is_hook(document):
    return "helm.sh/hook" in document["metadata"].get("annotations", {})


def containers(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]


def pod_of(values=()):
    return of_kind(values, "DaemonSet")[0]["spec"]["template"]["spec"]


def test_helm_finds_nothing_to_mend(_world):
    for values in ((), ALL):
        settings = [word for value in values for word in ("--set", value)]
        helm("lint", "--strict", "--quiet", CHART, *settings)


def test_good_values_make_valid_objects(_world):
    for values in GOOD:
        found = rendered(values)
        names = [(document["kind"], document["metadata"]["name"]) for document in found if not is_hook(document)]
        check(len(names) == len(set(names)), f"{values}: two objects of one name: {names}")
        check(("DaemonSet" in {kind for kind, _ in names}), f"{values}: no DaemonSet")
    check(not of_kind(LEAST, "ClusterRole") and not of_kind(LEAST, "ServiceAccount"), "objects that nobody wants")


def test_without_kube_proxy_the_agent_needs_another_way_to_the_api_server(_world):
    options = ("services.replaceKubeProxy=true", "services.clusterCIDR={10.244.0.0/16,fd00:244::/56}")
    command = pod_of((*options, "agent.apiServer.host=192.0.2.1"))["containers"][0]["command"]
    for word in ("--replace-kube-proxy", "--cluster-cidr=10.244.0.0/16,fd00:244::/56"):
        check(word in command, f"{word} is not in {command}")
    check("--replace-kube-proxy" not in pod_of()["containers"][0]["command"], "kube-proxy is replaced unasked")
    try:
        template(options)
    except Failure as failure:
        check("services.replaceKubeProxy needs agent.apiServer.host" in str(failure), f"refused otherwise: {failure}")
    else:
        raise Failure("no address of the API server is needed")


def test_services_are_left_to_others_with_the_rights_to_read_them(_world):
    options = ("services.enabled=false",)
    check("--no-services" in pod_of(options)["containers"][0]["command"], "the agent reads Services unasked")
    check("--no-services" not in pod_of()["containers"][0]["command"], "no Services by default")
    asked = {resource for role in of_kind(options, "ClusterRole") for rule in role["rules"] for resource in rule["resources"]}
    check(asked and not asked & {"services", "endpointslices"}, f"rights that nobody needs: {asked}")


def test_bad_values_are_refused(_world):
    for value in BAD:
        try:
            template((value,))
        except Failure as failure:
            check("values don't meet the specifications of the schema" in str(failure), f"{value} is refused otherwise: {failure}")
        else:
            raise Failure(f"{value} is accepted")


def test_each_value_has_its_schema_and_its_explanation(_world):
    values = json.loads(run(PYTHON, "-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)",
                            stdin=(CHART / "values.yaml").read_text()))
    schema = json.loads((CHART / "values.schema.json").read_text())
    check(set(values) == set(schema["properties"]) - {"global"}, "values.yaml and values.schema.json name different values")
    readme = (ROOT / "dist" / "chart" / "sidestep" / "values.yaml").read_text()
    check(len(re.findall(r"^ *# ", readme, re.MULTILINE)) > 30, "hardly any value is explained")


def test_containers_have_the_capabilities_of_the_units(_world):
    pod = pod_of(ALL)
    # The broker has SYS_ADMIN for other reasons, too.
    more = {"broker": {"SYS_RESOURCE"} ^ {"NET_ADMIN", "SYS_ADMIN"}, "agent": set()}
    for name, unit in (("agent", "sidestep-agent"), ("broker", "sidestepd")):
        text = (ROOT / "dist" / "systemd" / f"{unit}.service").read_text()
        line = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.MULTILINE)[1]
        expected = {word.removeprefix("CAP_") for word in line.split()} ^ more[name]
        rights = next(one for one in pod["containers"] if one["name"] == name)["securityContext"]
        check(set(rights["capabilities"]["add"]) == expected, f"{name}: {rights['capabilities']['add']}, the unit has {expected}")
    # The runtime's directories may be another user's.
    for values in (ALL, ()):
        for one in containers(pod_of(values)):
            added = set(one["securityContext"]["capabilities"].get("add", []))
            of_others = {"CHOWN", "DAC_OVERRIDE"}
            expected = of_others if one["name"] in ("cni", "cni-install", "cni-uninstall") else set()
            check(added & of_others == expected, f"{one['name']} has {added}")
    for one in containers(pod):
        rights = one["securityContext"]
        check(rights["capabilities"]["drop"] == ["ALL"] and not rights["privileged"], f"{one['name']} has too many rights")
        check(rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"], f"{one['name']} may change itself")


def test_the_role_grants_what_is_used(_world):
    def granted(values):
        return {(resource, verb) for rule in of_kind(values, "ClusterRole")[0]["rules"]
                for resource in rule["resources"] for verb in rule["verbs"]}

    reads = {(name, verb) for name in ("services", "nodes", "endpointslices") for verb in ("list", "watch")}
    events = {("events", "create"), ("events", "patch")}
    namespaces = {("namespaces", verb) for verb in ("list", "watch")}  # which are enrolled for rings
    check(granted(()) == reads | events | namespaces, f"by default: {granted(())}")
    check(granted(("nri.enabled=false",)) == reads | events, f"without rings: {granted(('nri.enabled=false',))}")
    pods = {(name, verb) for name in ("pods", "namespaces", "networkpolicies") for verb in ("list", "watch")}
    pods.add(("pods", "get"))  # of one that is about to start
    taint = {("nodes", "get"), ("nodes", "patch")}
    label, evict = {("pods", "patch")}, {("pods/eviction", "create")}
    check(granted(ALL) == reads | events | pods | taint | label, f"with all: {granted(ALL)}")
    deleting = (*ALL, "cni.repair=delete")
    check(granted(deleting) == reads | events | pods | taint | evict, f"if pods are evicted: {granted(deleting)}")
    # Without the plugin nobody is admitted, so nobody is repaired.
    check(granted(("cni.repair=delete",)) == granted(()), f"without the plugin: {granted(('cni.repair=delete',))}")


def test_names_of_namespaces_and_sockets_agree(_world):
    pod = pod_of(ALL)
    volumes = {volume["name"] for volume in pod["volumes"]}
    for one in containers(pod):
        mounts = one.get("volumeMounts", [])
        check({mount["name"] for mount in mounts} <= volumes, f"{one['name']} mounts what is not there")
    netns = [mount for one in pod["containers"] for mount in one["volumeMounts"] if mount["name"] == "netns"]
    check(all(mount["mountPropagation"] == "HostToContainer" for mount in netns) and netns, "later namespaces are not seen")
    check(pod["hostNetwork"] and pod["hostPID"], "agent and broker need the node's network and processes")
    member = "/run/sidestep/member"
    words = {one["name"]: one["command"] for one in pod["containers"]}
    check(f"--address={member}/broker" in words["broker"] and f"--member={member}" in words["nri"], f"{words}")


def test_the_agent_knows_where_the_node_keeps_network_namespaces(world):
    """The runtime names them by the node's directory, which the agent's container has at /run/netns."""
    for of_node in ("/run/netns", "/var/run/netns", "/data/vendor/netns"):
        pod = pod_of((*ALL, f"hostPaths.netns={of_node}"))
        agent = next(one for one in pod["containers"] if one["name"] == "agent")
        check(f"--host-netns={of_node}" in agent["command"], f"{of_node}: {agent['command']}")
        volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in agent["volumeMounts"]}
        check(mounts.get("/run/netns") == of_node, f"{of_node}: {mounts}")
        run(world.program("sidestep-agent"), f"--host-netns={of_node}", "--help")
    check(not [word for word in pod_of()["containers"][0]["command"] if "netns" in word], "without the plugin nobody is admitted")


def test_agent_and_plugin_name_the_same_files(_world):
    pod = pod_of(ALL)
    one = {one["name"]: one for one in pod["containers"]}
    for file, of_agent, of_plugin in (("namespaces", "rings-namespaces", "namespaces-file"), ("events", "rings-events", "events")):
        for name, option in (("agent", of_agent), ("nri", of_plugin)):
            check(f"--{option}=/run/sidestep/rings/{file}" in one[name]["command"], f"{one[name]['command']}")
    for name in ("agent", "nri"):
        places = {mount["mountPath"] for mount in one[name]["volumeMounts"]}
        check(places & {"/run/sidestep", "/run/sidestep/rings"}, f"{name} does not see the files: {places}")
    paths = [volume["hostPath"]["path"] for volume in pod["volumes"] if volume["name"] == "rings"]
    check(paths == ["/run/sidestep/rings"], f"{paths}")


def test_programs_know_their_options(world):
    """Each command of a container, with --help behind: an option that is unknown is an error before that."""
    for values in ((), LEAST, WEBHOOK):
        deployed = [one["spec"]["template"]["spec"] for one in of_kind(values, "Deployment")]
        for one in [one for pod in (pod_of(values), *deployed) for one in containers(pod)]:
            program = one["command"][0].rsplit("/", 1)[1]
            if program == "sidestep-cni":
                continue  # its crate tests its own options
            for address in ("192.0.2.1", "fd00::1"):
                words = [word.replace("$(NODE_NAME)", "n").replace("$(HOST_IP)", address) for word in one["command"][1:]]
                run(world.program(program), *words, "--help")


def test_the_daemons_log_as_the_values_say(_world):
    """The NRI plugin logs JSON in any case, and `sidestep status` logs nothing."""
    for values, expected in ((WEBHOOK, "json"), ((*WEBHOOK, "logFormat=text"), "text")):
        pods = [pod_of(values), of_kind(values, "Deployment")[0]["spec"]["template"]["spec"]]
        formats = {one["name"]: word.partition("=")[2] for pod in pods for one in pod["containers"] for word in one["command"]
                   if word.startswith("--log-format=")}
        check(formats == dict.fromkeys(("agent", "broker", "webhook"), expected), f"{values}: {formats}")


def webhooks_of(values):
    """By their paths."""
    found = of_kind(values, "MutatingWebhookConfiguration")[0]["webhooks"]
    return {one["clientConfig"]["service"]["path"]: one for one in found}


def test_injection_is_by_one_of_the_two(_world):
    kinds = {values: {one["kind"] for one in rendered(values)} for values in ((), LEAST, WEBHOOK)}
    for values, expected in (((), False), (LEAST, False), (WEBHOOK, True)):
        check(({"MutatingWebhookConfiguration", "Deployment"} <= kinds[values]) == expected, f"{values}: {kinds[values]}")
    names = {one["name"] for one in containers(pod_of(WEBHOOK))}
    check({"library", "library-collect"} <= names and "nri" not in names, f"the DaemonSet has {names}")
    options = [word for one in containers(pod_of(WEBHOOK)) for word in one["command"] if "--rings" in word]
    check(not options, f"there is no plugin whose files the agent could read: {options}")


def test_the_webhook_is_in_nobodys_way(_world):
    for values in (WEBHOOK, OWN_CERTIFICATE, ("injection=webhook",)):
        for one in webhooks_of(values).values():
            check(one["failurePolicy"] == "Ignore" and one["timeoutSeconds"] <= 5 and one["sideEffects"] == "None", f"{one}")
            check(one["reinvocationPolicy"] == "IfNeeded", "sidecars of other webhooks are left out")
            left = next(e["values"] for e in one["namespaceSelector"]["matchExpressions"] if e["key"] == "kubernetes.io/metadata.name")
            check(left == ["kube-system", "net"], f"namespaces that are left out: {left}")
    removal = [one for one in rendered(WEBHOOK) if one["kind"] == "MutatingWebhookConfiguration" and is_hook(one)]
    notes = removal[0]["metadata"]["annotations"]
    check(len(removal) == 1 and not removal[0]["webhooks"], f"{removal}")
    check(removal[0]["metadata"]["name"] == of_kind(WEBHOOK, "MutatingWebhookConfiguration")[0]["metadata"]["name"], "another name")
    check(int(notes["helm.sh/hook-weight"]) < 0 and "before-hook-creation" in notes["helm.sh/hook-delete-policy"], f"{notes}")


def selects(selector, labels):
    def holds(one):
        value = labels.get(one["key"])
        return {"In": value in one.get("values", []), "NotIn": value not in one.get("values", []),
                "Exists": value is not None, "DoesNotExist": value is None}[one["operator"]]
    return all(holds(one) for one in selector["matchExpressions"])


def test_each_pod_that_asks_for_rings_comes_by_one_path(_world):
    level = "pod-security.kubernetes.io/enforce"
    for values, default in ((("injection=webhook",), "privileged"), (WEBHOOK, "baseline")):
        for enrolled in (None, "enabled", "disabled"):
            for enforced in (None, "privileged", "baseline", "restricted"):
                for label in (None, "enabled", "disabled"):
                    names = {"kubernetes.io/metadata.name": "shop", "sidestep.dev/rings": enrolled, level: enforced}
                    names = {key: value for key, value in names.items() if value}
                    labels = {"sidestep.dev/rings": label} if label else {}
                    paths = [path for path, one in webhooks_of(values).items()
                             if selects(one["namespaceSelector"], names) and selects(one["objectSelector"], labels)]
                    by = "/pod" if label == "enabled" else "/namespace" if label is None and enrolled == "enabled" else None
                    above = "" if (enforced or default) == "privileged" else "/restricted"
                    check(paths == ([above + by] if by else []), f"{default} {names} {labels}: {paths}")


def test_the_webhooks_certificate_is_good_for_its_name(_world):
    secret = of_kind(WEBHOOK, "Secret")[0]["data"]
    check(set(secret) == {"ca.crt", "tls.crt", "tls.key"}, f"the authority's key is kept: {set(secret)}")
    bundles = {one["clientConfig"]["caBundle"] for one in webhooks_of(WEBHOOK).values()}
    check(bundles == {secret["ca.crt"]}, "the API server knows another authority")
    with tempfile.TemporaryDirectory() as directory:
        for name in ("ca.crt", "tls.crt"):
            Path(directory, name).write_bytes(base64.b64decode(secret[name]))
        said = run("openssl", "verify", "-purpose", "sslserver", "-verify_hostname", "sidestep-webhook.net.svc",
                   "-CAfile", f"{directory}/ca.crt", f"{directory}/tls.crt")
    check("OK" in said, said)
    check(not of_kind(OWN_CERTIFICATE, "Secret"), "a Secret beside the user's own")


def test_the_webhooks_certificate_stays_for_half_of_the_time_for_which_it_was_made(_world):
    """Also if the values say more by now. What the cluster has is a file here."""
    # Days since it was made, days for which it was made, days of the values: whether it stays.
    cases = {(4, 10, 10): True, (6, 10, 10): False, (6, 10, 3650): False, (6, 3650, 10): False, (6, 3650, 3650): True,
             (6, None, 3650): False}
    asked, kept = 'lookup "v1" "Secret" .Release.Namespace $name', {name: "a2VwdA==" for name in ("ca.crt", "tls.crt", "tls.key")}
    with tempfile.TemporaryDirectory() as directory:
        copy = shutil.copytree(CHART, Path(directory, "sidestep"))
        text = (copy / "templates" / "webhook.yaml").read_text()
        check(asked in text, "the chart asks for its Secret otherwise")
        (copy / "templates" / "webhook.yaml").write_text(text.replace(asked, '.Files.Get "present.json" | fromJson'))
        for (age, days, wanted), expected in cases.items():
            made = int(time.time()) - age * 86400
            before = {"sidestep.dev/made": str(made), **({"sidestep.dev/days": str(days)} if days else {})}
            (copy / "present.json").write_text(json.dumps({"metadata": {"annotations": before}, "data": kept}))
            found = documents(template((*WEBHOOK, f"webhook.certificate.days={wanted}"), chart=copy))
            secret = next(one for one in found if one["kind"] == "Secret")
            after = secret["metadata"]["annotations"]
            case = f"made {age} days ago for {days} days, values say {wanted}"
            check((secret["data"] == kept) == expected, f"{case}: {'new' if expected else 'kept'}")
            check((after == before) if expected else (after["sidestep.dev/days"] == str(wanted)), f"{case}: {before} becomes {after}")


def test_the_webhook_has_few_rights(_world):
    deployment = of_kind(WEBHOOK, "Deployment")[0]["spec"]
    pod = deployment["template"]["spec"]
    rights = pod["containers"][0]["securityContext"]
    check(deployment["replicas"] == 3 and pod["securityContext"]["runAsNonRoot"], "as root")
    check(rights["readOnlyRootFilesystem"] and rights["capabilities"] == {"drop": ["ALL"]} and not rights["allowPrivilegeEscalation"],
          f"{rights}")
    check(not [one for one in pod["volumes"] if "hostPath" in one] and not pod.get("hostNetwork"), "something of the node")
    selector, others = deployment["selector"]["matchLabels"], pod_labels(WEBHOOK)
    check(selector != {key: others.get(key) for key in selector}, "the DaemonSet's pods count as the webhook's")
    roles = [rule for kind in ("ClusterRole", "Role") for role in of_kind(WEBHOOK, kind)
             if role["metadata"]["name"] == "sidestep-webhook" for rule in role["rules"]]
    granted = {(resource, verb) for rule in roles for resource in rule["resources"] for verb in rule["verbs"]}
    check(granted == {(name, verb) for name in ("nodes", "pods") for verb in ("list", "watch")}, f"{granted}")
    words = pod["containers"][0]["command"]
    installers = next(word for word in words if word.startswith("--installers=")).partition("=")[2]
    check(dict(one.split("=") for one in installers.split(",")).items() <= others.items(), f"whose pods are {installers}?")


def pod_labels(values):
    return of_kind(values, "DaemonSet")[0]["spec"]["template"]["metadata"]["labels"]


def test_the_manifests_are_up_to_date(_world):
    program = ROOT / "tools" / "package"
    before = (ROOT / "dist" / "manifests" / "sidestep.yaml").read_text()
    try:
        run(program, "manifests")
        now = (ROOT / "dist" / "manifests" / "sidestep.yaml").read_text()
    finally:
        (ROOT / "dist" / "manifests" / "sidestep.yaml").write_text(before)
    check(before == now, "dist/manifests is older than the chart: run make manifests")
    check("DaemonSet" in {one["kind"] for one in documents(now)}, "no DaemonSet")
