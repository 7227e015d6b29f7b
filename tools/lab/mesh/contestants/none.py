"""No mesh: the client talks to the server. What everybody else adds something to."""

from .base import Contestant


class NoMesh(Contestant):
    name, title = "none", "no mesh"
    meshed = led = False
    main = True
