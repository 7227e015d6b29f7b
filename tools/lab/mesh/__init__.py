"""`make bench-mesh`: what it costs to lead the traffic of pods through their sidecars, by whoever leads it there.

plan          every number of the measurement, and the cells it consists of
node          a node with two pods: network namespaces with routes between them and none outside
rules         iptables' rules, as istio-iptables writes them for a pod, and many more on the node
certificates  who the two pods are
envoy         the configuration of their sidecars
service       nginx, which answers
pod           how a program of a pod is started
contestants/  who leads the traffic: nobody, rules, Sidestep in its parts
mesh          one contestant with its node, pods, sidecars and service
proof         whether traffic really takes the way it should
meter         CPU of each program, and of the machine
turn          one load on one mesh
rounds        all contestants in turn
figures       what is compared
compare       better, worse or no difference, from pairs of rounds
goals         what is to be reached, and whether it was
report        the tables
plot          the picture
profile       where the sidecars' CPU goes
main          the command
"""
