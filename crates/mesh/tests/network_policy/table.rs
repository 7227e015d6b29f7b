//! Policies of the upstream cases, and the cases as a table.

use sidestep_mesh::address::Protocol::{self, Tcp, Udp};

/// {name, policies as `NAMESPACE: SPEC`, protocol and port of the calls, `CLIENTS > SERVERS: yes|no` in the order in which they count}
pub type Row = (&'static str, &'static [&'static str], Protocol, u16, &'static [&'static str]);

pub const DENY_IN: &str = "x: podSelector: {}, policyTypes: [Ingress]";
pub const DENY_ALL: &str = "x: podSelector: {}, policyTypes: [Ingress, Egress]";
pub const ALLOW_IN: &str = "x: podSelector: {}, ingress: [{}]";
pub const FROM_Y_AT_81: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: \
                            {matchLabels: {ns: y}}}], ports: [{port: 81, protocol: TCP}]}]";
pub const FROM_Y_AT_80: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: \
                            {matchLabels: {ns: y}}}], ports: [{port: 80, protocol: TCP}]}]";
pub const FROM_Y: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: \
                      {kubernetes.io/metadata.name: y}}}]}]";
pub const FROM_Y_A: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: a}}, \
                        namespaceSelector: {matchLabels: {ns: y}}}]}]";
pub const TO_Y_A: &str = "x: podSelector: {matchLabels: {pod: a}}, egress: [{to: [{podSelector: {matchLabels: {pod: a}}, \
                      namespaceSelector: {matchLabels: {ns: y}}}]}], policyTypes: [Egress]";
pub const TO_80: &str = "x: podSelector: {}, egress: [{ports: [{port: 80}]}], policyTypes: [Egress]";
pub const B_AND_80: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}], \
                        egress: [{ports: [{port: 80}]}], policyTypes: [Ingress, Egress]";
pub const NAMED_81: &str = "x: podSelector: {}, ingress: [{ports: [{port: serve-81-tcp}]}]";
pub const NAMED_80_OF_Y: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: \
                             {matchLabels: {ns: y}}}], ports: [{port: serve-80-tcp, protocol: TCP}]}]";
pub const TO_NAMED_80: &str = "x: podSelector: {}, egress: [{ports: [{port: serve-80-tcp}]}], policyTypes: [Egress]";
pub const EXCEPT_B: &str = "x: podSelector: {matchLabels: {pod: a}}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: \
                        [10.0.1.2/32]}}]}], policyTypes: [Egress]";
pub const UPDATED: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: \
                       {ns2: updated}}}]}]";
pub const FROM_UPDATED: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b, pod2: updated}}}]}]";
pub const ISOLATED: &str = "x: podSelector: {matchLabels: {target: isolated}}, policyTypes: [Ingress]";
pub const ONLY_TCP: &str = "x: podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{protocol: TCP}]}]";
pub const OUT_OF_A: &str = "x: podSelector: {matchLabels: {pod: a}}, egress: [{}], policyTypes: [Egress]";

pub const CASES: &[Row] = &[
    ("should support a 'default-deny-ingress' policy", &[DENY_IN], Tcp, 80, &["*/* > x/*: no"]),
    ("should support a 'default-deny-ingress' policy", &[DENY_IN], Udp, 80, &["*/* > x/*: no"]),
    ("should support a 'default-deny-all' policy", &[DENY_ALL], Tcp, 80, &["*/* > x/*: no", "x/* > */*: no"]),
    (
        "should enforce policy to allow traffic from pods within server namespace based on PodSelector",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]"],
        Tcp,
        80,
        &["*/* > x/a: no", "x/b > x/a: yes"],
    ),
    (
        "should enforce policy to allow ingress traffic for a target",
        &[
            DENY_IN,
            "x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {}, namespaceSelector: {}}]}]",
        ],
        Tcp,
        80,
        &["*/* > x/*: no", "*/* > x/a: yes"],
    ),
    (
        "should enforce policy to allow ingress traffic from pods in all namespaces",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {}}]}]"],
        Tcp,
        80,
        &[],
    ),
    (
        "should enforce policy to allow traffic only from a different namespace, based on NamespaceSelector",
        &[FROM_Y],
        Tcp,
        80,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    (
        "should enforce policy based on PodSelector with MatchExpressions",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchExpressions: \
           [{key: pod, operator: In, values: [b]}]}}]}]"],
        Tcp,
        80,
        &["*/* > x/a: no", "x/b > x/a: yes"],
    ),
    (
        "should enforce policy based on NamespaceSelector with MatchExpressions",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchExpressions: \
           [{key: ns, operator: In, values: [y]}]}}]}]"],
        Tcp,
        80,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    (
        "should enforce policy based on PodSelector or NamespaceSelector",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchExpressions: \
           [{key: ns, operator: NotIn, values: [x]}]}}, {podSelector: {matchLabels: {pod: b}}}]}]"],
        Tcp,
        80,
        &["x/c > x/a: no"],
    ),
    (
        "should enforce policy based on PodSelector and NamespaceSelector",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchExpressions: \
           [{key: ns, operator: NotIn, values: [x]}]}, podSelector: {matchLabels: {pod: b}}}]}]"],
        Tcp,
        80,
        &["*/* > x/a: no", "y/b > x/a: yes", "z/b > x/a: yes"],
    ),
    (
        "should enforce policy based on Multiple PodSelectors and NamespaceSelectors",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchExpressions: \
           [{key: ns, operator: NotIn, values: [x]}]}, podSelector: {matchExpressions: \
           [{key: pod, operator: In, values: [b, c]}]}}]}]"],
        Tcp,
        80,
        &["x/* > x/a: no", "y/a > x/a: no", "z/a > x/a: no"],
    ),
    (
        "should enforce policy based on any PodSelectors",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}, \
           {podSelector: {matchLabels: {pod: c}}}]}]"],
        Tcp,
        80,
        &["*/* > x/a: no", "x/b > x/a: yes", "x/c > x/a: yes"],
    ),
    (
        "should enforce policy to allow traffic only from a pod in a different namespace based on PodSelector and \
         NamespaceSelector",
        &[FROM_Y_A],
        Tcp,
        80,
        &["*/* > x/a: no", "y/a > x/a: yes"],
    ),
    (
        "should enforce policy to allow traffic only from a pod in a different namespace based on PodSelector and \
         NamespaceSelector",
        &[FROM_Y_A],
        Udp,
        80,
        &["*/* > x/a: no", "y/a > x/a: yes"],
    ),
    ("should enforce policy based on Ports", &[FROM_Y_AT_81], Tcp, 81, &["x/* > x/a: no", "z/* > x/a: no"]),
    (
        "should enforce policy based on Ports",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}], \
           ports: [{port: 81, protocol: UDP}]}]"],
        Udp,
        81,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    (
        "should enforce multiple, stacked policies with overlapping podSelectors",
        &[FROM_Y_AT_81],
        Tcp,
        81,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    (
        "should enforce multiple, stacked policies with overlapping podSelectors",
        &[FROM_Y_AT_81],
        Tcp,
        80,
        &["*/* > x/a: no"],
    ),
    (
        "should enforce multiple, stacked policies with overlapping podSelectors",
        &[FROM_Y_AT_81, FROM_Y_AT_80],
        Tcp,
        80,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    ("should support allow-all policy", &[ALLOW_IN], Tcp, 80, &[]),
    ("should support allow-all policy", &[ALLOW_IN], Tcp, 81, &[]),
    ("should allow ingress access on one named port", &[NAMED_81], Tcp, 81, &[]),
    ("should allow ingress access on one named port", &[NAMED_81], Tcp, 80, &["*/* > x/*: no"]),
    (
        "should allow ingress access from namespace on one named port",
        &[NAMED_80_OF_Y],
        Tcp,
        80,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    ("should allow ingress access from namespace on one named port", &[NAMED_80_OF_Y], Tcp, 81, &["*/* > x/a: no"]),
    ("should allow egress access on one named port", &[TO_NAMED_80], Tcp, 80, &[]),
    ("should allow egress access on one named port", &[TO_NAMED_80], Tcp, 81, &["x/* > */*: no"]),
    ("should enforce updated policy", &[ALLOW_IN], Tcp, 81, &[]),
    ("should enforce updated policy", &["x: podSelector: {}, ingress: []"], Tcp, 81, &["*/* > x/*: no"]),
    (
        "should deny ingress from pods on other namespaces",
        &["x: podSelector: {}, ingress: [{from: [{podSelector: {}}]}]"],
        Tcp,
        80,
        &["y/* > x/*: no", "z/* > x/*: no"],
    ),
    (
        "should deny egress from pods based on PodSelector",
        &["x: podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]"],
        Tcp,
        80,
        &["x/a > */*: no"],
    ),
    (
        "should deny egress from all pods in a namespace",
        &["x: podSelector: {}, policyTypes: [Egress]"],
        Tcp,
        80,
        &["x/* > */*: no"],
    ),
    ("should work with Ingress, Egress specified together", &[B_AND_80], Tcp, 80, &["*/* > x/a: no", "x/b > x/a: yes"]),
    (
        "should work with Ingress, Egress specified together",
        &[B_AND_80],
        Tcp,
        81,
        &["*/* > x/a: no", "x/a > */*: no", "x/b > x/a: yes"],
    ),
    (
        "should support denying of egress traffic on the client side (even if the server explicitly allows this traffic)",
        &[
            TO_Y_A,
            "y: podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: a}}, \
             namespaceSelector: {matchLabels: {ns: x}}}]}]",
            "y: podSelector: {matchLabels: {pod: b}}, ingress: [{from: [{podSelector: {matchLabels: {pod: a}}, \
             namespaceSelector: {matchLabels: {ns: x}}}]}]",
        ],
        Tcp,
        80,
        &["x/a > */*: no", "*/* > y/a: no", "*/* > y/b: no", "x/a > y/a: yes"],
    ),
    (
        "should enforce egress policy allowing traffic to a server in a different namespace based on PodSelector and \
         NamespaceSelector",
        &[TO_Y_A],
        Tcp,
        80,
        &["x/a > */*: no", "x/a > y/a: yes"],
    ),
    (
        "should enforce ingress policy allowing any port traffic to a server on a specific protocol",
        &[ONLY_TCP],
        Tcp,
        80,
        &[],
    ),
    (
        "should enforce ingress policy allowing any port traffic to a server on a specific protocol",
        &[ONLY_TCP],
        Udp,
        80,
        &["*/* > x/a: no"],
    ),
    (
        "should enforce multiple ingress policies with ingress allow-all policy taking precedence",
        &["x: podSelector: {}, ingress: [{ports: [{port: 80}]}]"],
        Tcp,
        81,
        &["*/* > x/*: no"],
    ),
    (
        "should enforce multiple ingress policies with ingress allow-all policy taking precedence",
        &["x: podSelector: {}, ingress: [{ports: [{port: 80}]}]", ALLOW_IN],
        Tcp,
        81,
        &[],
    ),
    (
        "should enforce multiple egress policies with egress allow-all policy taking precedence",
        &[TO_80],
        Tcp,
        81,
        &["x/* > */*: no"],
    ),
    (
        "should enforce multiple egress policies with egress allow-all policy taking precedence",
        &[TO_80, "x: podSelector: {}, egress: [{}], policyTypes: [Egress]"],
        Tcp,
        81,
        &[],
    ),
    (
        "should stop enforcing policies after they are deleted",
        &[DENY_ALL],
        Tcp,
        80,
        &["x/* > */*: no", "*/* > x/*: no"],
    ),
    ("should stop enforcing policies after they are deleted", &[], Tcp, 80, &[]),
    (
        "should allow egress access to server in CIDR block",
        &[
            "x: podSelector: {matchLabels: {pod: a}}, egress: [{to: [{ipBlock: {cidr: 10.0.2.2/32}}]}], policyTypes: [Egress]",
        ],
        Tcp,
        80,
        &["x/a > */*: no", "x/a > y/b: yes"],
    ),
    (
        "should enforce except clause while egress access to server in CIDR block",
        &[EXCEPT_B],
        Tcp,
        80,
        &["x/a > x/b: no"],
    ),
    (
        "should ensure an IP overlapping both IPBlock.CIDR and IPBlock.Except is allowed",
        &[EXCEPT_B],
        Tcp,
        80,
        &["x/a > x/b: no"],
    ),
    (
        "should ensure an IP overlapping both IPBlock.CIDR and IPBlock.Except is allowed",
        &[
            EXCEPT_B,
            "x: podSelector: {matchLabels: {pod: a}}, egress: [{to: [{ipBlock: {cidr: 10.0.1.2/32}}]}], policyTypes: [Egress]",
        ],
        Tcp,
        80,
        &[],
    ),
    (
        "should enforce policies to check ingress and egress policies can be controlled independently based on PodSelector",
        &[OUT_OF_A],
        Tcp,
        80,
        &[],
    ),
    (
        "should enforce policies to check ingress and egress policies can be controlled independently based on PodSelector",
        &[OUT_OF_A, "x: podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]"],
        Tcp,
        80,
        &["*/* > x/a: no"],
    ),
    (
        "should not mistakenly treat 'protocol: SCTP' as 'protocol: TCP', even if the plugin doesn't support SCTP",
        &[DENY_IN, "x: podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 81, protocol: SCTP}]}]"],
        Tcp,
        81,
        &["*/* > x/*: no"],
    ),
    (
        "should properly isolate pods that are selected by a policy allowing SCTP, even if the plugin doesn't support SCTP",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80, protocol: SCTP}]}]"],
        Tcp,
        81,
        &["*/* > x/a: no"],
    ),
    (
        "should not allow access by TCP when a policy specifies only UDP",
        &["x: podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 81, protocol: UDP}]}]"],
        Tcp,
        81,
        &["*/* > x/a: no"],
    ),
    (
        "should enforce policy to allow traffic based on NamespaceSelector with MatchLabels using default ns label",
        &[FROM_Y],
        Tcp,
        80,
        &["x/* > x/a: no", "z/* > x/a: no"],
    ),
    (
        "should enforce policy based on NamespaceSelector with MatchExpressions using default ns label",
        &["x: podSelector: {matchLabels: {pod: a}}, egress: [{to: [{namespaceSelector: {matchExpressions: \
           [{key: kubernetes.io/metadata.name, operator: NotIn, values: [y]}]}}]}], policyTypes: [Egress]"],
        Tcp,
        80,
        &["x/a > y/*: no"],
    ),
];
