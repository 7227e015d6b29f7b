"""`make bench-services`: what a Kubernetes Service costs, by whoever exchanges its address for a backend's.

plan          every number of the measurement, in one place
workload      the Services, their endpoints, and which of them are dialled
cluster       a node with pods: network namespaces on a bridge, without a route outside
controlplane  a real API server, for who needs one
contestants/  who does the exchange: nobody, Sidestep, rules as kube-proxy writes them, kube-proxy itself
trial         one contestant in its cluster: load, change, dial
programs      what Sidestep's programs do for a connection
rounds        all contestants in turn
figures       medians, quartiles, ratios taken round by round
goals         what is to be reached, and whether it was
report        the tables
plot          the picture
main          the command
"""
