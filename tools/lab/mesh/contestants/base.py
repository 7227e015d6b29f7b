"""Who leads a pod's traffic through its sidecar."""


class Contestant:
    name = title = ""
    #: There are sidecars.
    meshed = True
    #: Requests take the way through them.
    led = True
    #: The node has a kube-proxy, and its rules.
    kube_proxy = True
    #: Takes part in all cells, not only where everybody does.
    main = False

    def __init__(self, mesh):
        self.mesh, self.lab, self.places = mesh, mesh.lab, mesh.places
        self.node, self.plan = mesh.node, mesh.plan
        #: Of every program.
        self.environment = {}

    @classmethod
    def missing(cls, places):
        """Why it cannot take part here; None if it can."""
        return None

    def steer(self):
        """Before anything is started in the pods, as an init container does."""

    def wrap(self, place, program):
        """What stands before the command of a program."""
        return []

    def moved(self):
        """What is to have grown when requests have taken this contestant's way: name -> bytes."""
        return {}

    def close(self):
        """What is not gone with the node; called when all programs are."""

    @property
    def places_of_pods(self):
        return (self.node.client, self.node.server)
