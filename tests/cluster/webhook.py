"""The same goal where containers get the library by the admission webhook: no NRI, and no Pod Security level that forbids hostPath."""

from cluster import goal, removal, shop, workloads
from cluster.cluster import DAEMONSET, NAMESPACE, RELEASE, WEBHOOK
from cluster.goal import ENROLLED
from testkit import wait

NAME = f"{RELEASE}-webhook"
DEPLOYMENT = {"kind": "Deployment", "metadata": {"name": NAME, "namespace": NAMESPACE}}
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VOLUMES = {"sidestep-library", "sidestep-member"}
KNOWN_SECONDS = 30


def install_webhook(cluster, checks):
    """`helm install` with `injection=webhook`: the webhook knows that each node has the library, and nothing asks for NRI."""
    cluster.helm_install("injection=webhook")
    cluster.wait_rollout(DAEMONSET)
    cluster.wait_rollout(DEPLOYMENT)
    for pod in cluster.pods(NAMESPACE, f"app.kubernetes.io/name={NAME}"):
        address = pod["status"]["podIP"]
        count = lambda address=address: cluster.metrics_at(address, WEBHOOK)["sidestep_webhook_nodes_with_library"]  # noqa: E731
        wait.until(lambda count=count: count() == len(cluster.nodes), "the webhook to know the library of each node", KNOWN_SECONDS)
    names = {c["name"] for c in cluster.api.get(DAEMONSET)["spec"]["template"]["spec"]["containers"]}
    checks.check("nri" not in names and "agent" in names, f"the DaemonSet has {names}")


def rings_by_webhook(cluster, checks):
    """An application and Envoy in a pod of a namespace without Pod Security: 95 % of the bytes between them go by ring."""
    for thing in shop.objects(level=None):
        cluster.api.create(thing)
    web = shop.deployment(replicas=len(cluster.nodes), labels=ENROLLED)
    cluster.api.create(web)
    cluster.wait_rollout(web)
    for pod in cluster.pods(shop.NAMESPACE, "app=web"):
        checks.check(volumes(pod) >= VOLUMES, f"{pod['metadata']['name']} has the volumes {volumes(pod)}")
    seen, before = goal.load(cluster, checks, "requests to labelled pods")
    goal.check_share(cluster, checks, seen["bytes"], before, "rings by webhook")


def namespaces(cluster, checks):
    """A namespace's label enrols its pods, unless its Pod Security level forbids hostPath: those start, and are told why not."""
    for name, level in (("whole", None), ("strict", "restricted")):
        cluster.api.create(shop.namespace(name, level, **ENROLLED))
        pods = shop.idle("idle", 1)
        pods["metadata"]["namespace"] = name
        cluster.api.create(pods)
        cluster.wait_rollout(pods)
        for pod in cluster.pods(name):
            told = pod["metadata"].get("annotations", {}).get("sidestep.dev/left-out")
            got = volumes(pod) & VOLUMES
            checks.check((got, told) == ((VOLUMES, None) if level is None else (set(), "redis=pod-security")),
                         f"{name}: {got}, {told}")
        cluster.api.delete(pods)


def volumes(pod):
    return {volume["name"] for volume in pod["spec"].get("volumes", [])}


def uninstall_webhook(cluster, checks):
    """`helm uninstall` first takes the webhook away, then what is on the nodes."""
    removal.uninstall(cluster, checks)
    left = [one["metadata"]["name"] for one in cluster.api.ask("GET", CONFIGURATIONS)["items"]]
    left += [one["metadata"]["name"] for one in cluster.api.list("Secret", NAMESPACE)]
    checks.check(not [name for name in left if name.startswith(RELEASE) and "helm" not in name], f"left: {left}")


CASES = (install_webhook, rings_by_webhook, workloads.musl, namespaces, goal.unlabel, uninstall_webhook)
