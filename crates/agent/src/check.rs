//! Compares the kernel's tables with what they are meant to hold.

use crate::report;
use crate::view::View;
use sidestep_agent_api::{Check, Source, Trouble};
use sidestep_ebpf::error::Result;
use sidestep_ebpf::external;
use sidestep_mesh::address::Endpoint;
use sidestep_mesh::plane::{Frontend, FrontendKey};
use sidestep_mesh::table::Backend;
use std::collections::{BTreeSet, HashSet};

pub fn check(view: &View) -> Result<Check> {
    let mut check = Check { troubles: view.troubles().cloned().collect(), ..Check::default() };
    check.problems =
        view.reconciler.problems().map(|(name, problem)| format!("{name}: {}", report::described(problem))).collect();
    let refused = view.policing.refused.iter();
    check.problems.extend(refused.map(|(name, why)| format!("{name} is not led around proxies: {why}")));
    for (name, status) in &view.pods.statuses {
        check.problems.extend(status.troubles.iter().map(|trouble| format!("Capture {name}: {trouble}")));
    }
    let mut meant = HashSet::new();
    for port in view.reconciler.ports() {
        let mine = port.frontends().filter(|(key, _)| view.reconciler.owner(key) == Some(&port.key));
        for (key, value) in mine {
            meant.insert(key);
            let differences = compare(view, key, value, &port.table.list)?;
            check.differences.extend(differences.into_iter().map(|what| format!("{}: {key}: {what}", port.key)));
        }
    }
    check.frontends = meant.len();
    if view.is_complete() {
        let found = view.maps.frontends()?;
        let strangers = found.into_iter().filter(|(key, _)| !meant.contains(key));
        check.differences.extend(strangers.map(|(key, _)| format!("{key}: is in the tables, and no Service's")));
    }
    if !view.translates_packets() {
        let what = "--replace-kube-proxy: packets to Services are not translated at all devices";
        check.differences.push(what.into());
    }
    if view.settings.replace_kube_proxy {
        let rivals = external::rivals()?;
        check
            .problems
            .extend(rivals.map(|found| format!("--replace-kube-proxy: packets are translated twice: {found}")));
    }
    check.troubles.extend(view.sources.iter().filter(|source| !source.listed).map(not_read));
    Ok(check)
}

/// Before that, an earlier agent's Services are in force, and none of them counts as a difference.
fn not_read(source: &Source) -> Trouble {
    let what = "source not read yet: connections are balanced as an earlier agent programmed them, if one did";
    Trouble { place: source.name.clone(), what: what.into(), hides_objects: true }
}

/// The difference at one frontend, if there is one.
fn compare(view: &View, key: FrontendKey, value: Frontend, list: &[Backend]) -> Result<Option<String>> {
    let Some(found) = view.maps.frontend(&key)? else {
        return Ok(Some("is not in the tables".into()));
    };
    if found != value {
        return Ok(Some(format!("the tables say {found:?} where {value:?} is meant")));
    }
    let reached: BTreeSet<Endpoint> =
        view.maps.backends_of(&found).into_iter().map(|n| view.maps.endpoint(n)).collect();
    let wanted: BTreeSet<Endpoint> = list.iter().map(|backend| backend.endpoint).collect();
    Ok((reached != wanted).then(|| format!("leads to {reached:?} where {wanted:?} is meant")))
}
