//! The scenarios that come with Sidestep.

use super::error::NotShipped;

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        /// name -> text, in the order of the list.
        pub fn shipped() -> &'static [(&'static str, &'static str)] {
            &[$(($name, include_str!(concat!("../../scenarios/", $name, ".yaml")))),*]
        }
    };
}

scenarios![
    "demo",
    "proxies",
    "ping-pong",
    "stream",
    "redis",
    "connect",
    "one-end",
    "idle-cost",
    "idle",
    "splice",
    "splice-stream",
    "splice-connect",
    "services",
    "services-setup",
    "services-change",
    "kmap",
    "socket-ebpf",
    "sidecar",
    "mesh",
    "kube",
    "smc-nginx",
    "smc-redis",
    "smc-sockperf",
    "socksdirect",
    "hosts",
    "hosts-redis",
    "hosts-envoy",
    "hosts-untaken",
    "hosts-idle",
];

/// The text of the scenario of this name; the error lists all names.
pub fn find(name: &str) -> Result<&'static str, NotShipped> {
    let found = shipped().iter().find(|(each, _)| *each == name);
    found.map(|(_, text)| *text).ok_or_else(|| NotShipped { known: shipped().iter().map(|(each, _)| *each).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn each_can_be_read_has_its_name_and_is_something_when_quick() {
        for (name, text) in shipped() {
            let scenario = parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(scenario.name, *name);
            let (all, quick) = (scenario.cells().len(), scenario.clone().quick());
            assert!(quick.variants.contains_key(&scenario.baseline), "{name}");
            assert!((1..=all).contains(&quick.cells().len()), "{name}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        assert!(find("no-such").expect_err("it is not there").to_string().contains("demo"));
    }
}
