//! What the plugin that gives containers the library says of them becomes Kubernetes Events on their pods.
//!
//! ```text
//!   sidestep-nri --events FILE --> FILE [`lines`] --> what is said of a container [`told`] --> how often [`quota`] --> announcer
//! ```
//!
//! Only the node's root writes the file; it is read all the same as if a stranger did.

mod lines;
mod quota;
mod told;

use crate::announce::Announcer;
use crate::complaints::Complaints;
use lines::Lines;
use quota::Quota;
use sidestep_agent_api::Trouble;
use sidestep_error::chain;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use told::Told;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// For ever. `announcer`: one of its own, so that containers do not use up what the agent has to say of the node.
pub fn follow(file: PathBuf, mut announcer: Announcer) {
    let place = file.display().to_string();
    let (mut lines, mut quota, mut complaints) = (Lines::new(file), Quota::default(), Complaints::default());
    loop {
        match lines.next() {
            Ok(new) => {
                complaints.end(&place);
                new.iter()
                    .filter_map(|line| Told::read(line))
                    .for_each(|told| announce(told, &mut quota, &mut announcer));
            }
            Err(error) => {
                let what = format!("there are no Events of containers: {}", chain(&error));
                complaints.tell(&Trouble { place: place.clone(), what, hides_objects: false });
            }
        }
        std::thread::sleep(LOOK);
    }
}

fn announce(told: Told, quota: &mut Quota, announcer: &mut Announcer) {
    if quota.permits(&told.pod, Instant::now()) {
        announcer.warn(told.subject, told.reason, told.note);
    }
}
