//! The Services of a cluster, and which of them are dialled.
//!
//! Each has an address of its own and twelve endpoints, which no other Service shares. Three lead to pods that exist: the
//! first, the middle and the last, as the cost of a list of rules depends on the place in it.

use std::net::Ipv4Addr;

pub const NAMESPACE: &str = "bench";
pub const PORT: u16 = 80;
pub const TARGET_PORT: u16 = 8080;
pub const ENDPOINTS: u32 = 12;
/// Where pods have their addresses: from elsewhere packets would have to be masqueraded.
pub const POD_RANGE: &str = "10.76.0.0/14";
/// Pods that exist. There is one more than a Service has endpoints: it takes the place of the last one in a change.
const FIRST_POD: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Endpoints that nobody dials.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
/// Services that are dialled have the same addresses however many there are.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);
const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 3);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 4);
const OTHERS: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 0);

#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its place among all.
    pub number: u32,
    pub name: String,
    pub address: Ipv4Addr,
    pub endpoints: Vec<Ipv4Addr>,
    pub dialled: bool,
}

/// The middle one is always there, the first and the last from three on.
pub fn services(count: u32) -> Vec<Service> {
    (0..count).map(|number| service(number, count)).collect()
}

fn service(number: u32, count: u32) -> Service {
    let address = match number {
        _ if number == count / 2 => MIDDLE,
        0 => FIRST,
        _ if number == count - 1 => LAST,
        _ => after(OTHERS, number),
    };
    let dialled = [FIRST, MIDDLE, LAST].contains(&address);
    let first = if dialled { FIRST_POD } else { after(ELSEWHERE, number * ENDPOINTS) };
    let endpoints = (0..ENDPOINTS).map(|each| after(first, each)).collect();
    Service { number, name: format!("s{number}"), address, endpoints, dialled }
}

fn after(address: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) + number)
}

/// One endpoint of a Service is exchanged for another pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub old: Service,
    pub new: Service,
}

impl Change {
    /// The middle one's last endpoint gives its place to the spare pod.
    pub fn there(all: &[Service]) -> Change {
        let old = all[all.len() / 2].clone();
        let mut new = old.clone();
        new.endpoints.pop();
        new.endpoints.push(after(FIRST_POD, ENDPOINTS));
        Change { old, new }
    }

    pub fn back(all: &[Service]) -> Change {
        let Change { old, new } = Change::there(all);
        Change { old: new, new: old }
    }

    pub fn come(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.new.endpoints.iter().copied().filter(|each| !self.old.endpoints.contains(each))
    }

    pub fn gone(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.old.endpoints.iter().copied().filter(|each| !self.new.endpoints.contains(each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn dialled(count: u32) -> Vec<Ipv4Addr> {
        services(count).into_iter().filter(|each| each.dialled).map(|each| each.address).collect()
    }

    #[test]
    fn the_middle_one_is_always_dialled() {
        assert_eq!(dialled(1), [MIDDLE]);
        assert_eq!(dialled(2), [FIRST, MIDDLE]);
        assert_eq!(dialled(1000), [FIRST, MIDDLE, LAST]);
    }

    #[test]
    fn no_two_services_share_anything_but_the_pods() {
        let all = services(30_000);
        assert_eq!(all.iter().map(|each| each.address).collect::<HashSet<_>>().len(), 30_000);
        let others: Vec<_> = all.iter().filter(|each| !each.dialled).flat_map(|each| &each.endpoints).collect();
        assert_eq!(others.iter().collect::<HashSet<_>>().len(), 29_997 * ENDPOINTS as usize);
        assert!(all[0].endpoints.iter().all(|pod| !others.contains(&pod)));
    }

    #[test]
    fn the_spare_pod_is_no_endpoint_before_the_change() {
        let change = Change::there(&services(10));
        assert_eq!(change.come().collect::<Vec<_>>(), [Ipv4Addr::new(10, 78, 0, 13)]);
        assert_eq!(change.gone().collect::<Vec<_>>(), [Ipv4Addr::new(10, 78, 0, 12)]);
        assert_eq!(Change::back(&services(10)).new, change.old);
    }
}
