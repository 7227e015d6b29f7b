//! Settings and addresses that change while the agent runs.

use super::Node;
use crate::addresses;
use crate::settings::Settings;
use sidestep_error::chain;
use sidestep_mesh::choose;
use std::sync::Arc;

impl Node {
    pub(super) fn write_addresses(&mut self) {
        let networks = &self.view.settings.node_port_addresses;
        let has_node_ports = |address| addresses::is_within(networks, address);
        if let Err(error) = self.view.maps.set_node_addresses(&self.addresses, has_node_ports) {
            tracing::error!("the node's addresses are not in the tables: {}", chain(&error));
        }
    }

    /// Adopts new settings, as far as a running agent can.
    pub(super) fn apply_settings(&mut self, new: Settings) {
        let fixed = self.view.settings.fixed_differences(&new);
        if !fixed.is_empty() {
            tracing::warn!("start the agent again for what has changed of its settings: {}", fixed.join(", "));
        }
        let mine = &mut self.view.settings;
        if new.node_port_addresses != mine.node_port_addresses {
            mine.node_port_addresses = new.node_port_addresses;
            self.write_addresses();
        }
        let mine = &mut self.view.settings;
        if mine.zone.is_some() && new.zone.is_some() {
            mine.zone = new.zone;
            let zone = mine.zone.as_deref().map(Into::into);
            self.set_zone(zone);
        }
    }

    pub(super) fn set_zone(&mut self, zone: Option<Arc<str>>) {
        if zone != self.view.reconciler.node().zone {
            self.view.reconciler.set_node(choose::Node { zone, ..self.view.reconciler.node().clone() });
            self.changed.extend(self.view.state.names());
        }
    }
}
