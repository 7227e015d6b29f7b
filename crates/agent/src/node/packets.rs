//! Packets to Services, with `--replace-kube-proxy`.

use super::Node;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::external;
use sidestep_error::chain;
use std::time::{Duration, Instant};

/// Somebody may flush the rules of nftables, of which the kernel tells nobody here.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Somebody may start a kube-proxy. To look for its rules reads all rules.
const LOOK_FOR_RIVALS_EVERY: Duration = Duration::from_secs(60);

impl Node {
    /// Translates packets from now on, or no longer, if only an earlier agent was to do it.
    pub fn translate_packets(&mut self) -> Result<()> {
        let settings = &self.view.settings;
        self.view.maps.set_pod_networks(&settings.cluster_cidr)?;
        if !settings.replace_kube_proxy {
            return external::remove(&settings.pins);
        }
        self.external = Some(external::install(&settings.pins)?);
        self.external_due = Some(Instant::now() + LOOK_EVERY);
        self.rivals_due = Instant::now() + LOOK_FOR_RIVALS_EVERY;
        Ok(())
    }

    pub(super) fn look_after_packets(&mut self) {
        self.follow_devices();
        if self.external.is_some() && self.rivals_due <= Instant::now() {
            self.rivals_due = Instant::now() + LOOK_FOR_RIVALS_EVERY;
            self.look_for_rivals();
        }
    }

    /// Tells of them once. `sidestep service check` looks for them, too.
    fn look_for_rivals(&mut self) {
        let found = external::rivals().unwrap_or_else(|error| {
            tracing::warn!("whether kube-proxy has rules here is not known: {}", chain(&error));
            None
        });
        if let Some(found) = found.as_ref().filter(|found| self.rivals.as_ref() != Some(found)) {
            tracing::error!("--replace-kube-proxy: packets are translated twice: {found}");
        }
        self.rivals = found;
    }

    /// Devices come and go.
    pub(super) fn follow_devices(&mut self) {
        let Some(external) = &self.external else { return };
        self.external_due = Some(Instant::now() + LOOK_EVERY);
        if let Err(error) = external.follow() {
            tracing::error!("packets to Services are not translated at all devices: {}", chain(&error));
        }
    }
}
