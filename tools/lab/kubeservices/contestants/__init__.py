"""Who takes part, in the order of the tables."""

from .direct import Direct
from .iptables import IptablesLegacy, IptablesNft
from .ipvs import Ipvs
from .kubeproxy import KubeProxyIptables, KubeProxyNftables
from .nftables import Nftables
from .sidestep import Sidestep

ALL = (Direct, Sidestep, Nftables, Ipvs, IptablesNft, IptablesLegacy, KubeProxyNftables, KubeProxyIptables)
