//! Random policies.

use super::world::policy;
use std::fmt::Write;

/// SplitMix64: the same seed gives the same numbers everywhere.
pub struct Numbers(pub u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const SELECTS: [&str; 4] = ["{}", "{app: web}", "{app: db}", "{tier: a}"];
const DEFAULTS: [&str; 5] = ["", "", "egress: deny", "ingress: deny", "egress: deny, ingress: deny"];
const PEERS: [&str; 10] = [
    "{labels: {app: web}}",
    "{labels: {app: db}}",
    "{namespace: '*', labels: {app: web}}",
    "{namespace: bank}",
    "{namespace: '*'}",
    "{cidr: 10.244.0.0/16, except: [10.244.0.2/31]}",
    "{cidr: 10.244.0.3/32}",
    "{cidr: 'fd00:244::/64', except: ['fd00:244::3/128']}",
    "{cidr: '::/0'}",
    "{cidr: 0.0.0.0/0}",
];
const PORTS: [&str; 7] = [
    "",
    "",
    "ports: [{port: 8080}]",
    "ports: [{port: 8080, protocol: UDP}]",
    "ports: [{port: 8080, endPort: 8090}, {port: 8081, protocol: UDP}]",
    "ports: [{protocol: TCP}]",
    "ports: [{protocol: UDP}]",
];

/// Some policies, as documents.
pub fn policies(numbers: &mut Numbers) -> String {
    let mut text = String::new();
    for number in 0..1 + numbers.below(4) {
        let spec = spec(numbers);
        write!(text, "---\n{}", policy(numbers.one_of(&["shop", "shop", "bank"]), &format!("p{number}"), &spec))
            .unwrap();
    }
    text
}

fn spec(numbers: &mut Numbers) -> String {
    let (egress, ingress) = (rules(numbers, "to"), rules(numbers, "from"));
    format!(
        "select: {{matchLabels: {}}}, default: {{{}}}, dryRun: {}, onDeny: {}, egress: [{egress}], ingress: [{ingress}]",
        numbers.one_of(&SELECTS),
        numbers.one_of(&DEFAULTS),
        numbers.below(4) == 0,
        if numbers.below(6) == 0 { "drop" } else { "refuse" },
    )
}

fn rules(numbers: &mut Numbers, field: &str) -> String {
    let one = |numbers: &mut Numbers| {
        let action = if numbers.below(3) == 0 { "deny" } else { "allow" };
        let peers: Vec<&str> = (0..numbers.below(3)).map(|_| numbers.one_of(&PEERS)).collect();
        let mut rule = format!("action: {action}");
        if !peers.is_empty() {
            write!(rule, ", {field}: [{}]", peers.join(", ")).unwrap();
        }
        match numbers.one_of(&PORTS) {
            "" => {}
            ports => write!(rule, ", {ports}").unwrap(),
        }
        format!("{{{rule}}}")
    };
    let count = numbers.below(4);
    (0..count).map(|_| one(numbers)).collect::<Vec<_>>().join(", ")
}
