"""Who takes part, in the order of the tables."""

from .iptables import Again, Iptables
from .none import NoMesh
from .rings import CaptureRings, IptablesRings
from .sidestep import Bypass, Capture, Services, Splice

ALL = (NoMesh, Bypass, Iptables, Again, IptablesRings, Capture, CaptureRings, Splice, Services)
