//! Sidestep's own processes: how much they use. Neither their arguments nor their environment are read.

use super::gather::Text;
use crate::locate::{AGENT, DAEMON, STACK};
use std::path::Path;

/// What of /proc/PID/status is said.
const FIELDS: &[&str] =
    &["Name", "State", "Uid", "VmHWM", "VmRSS", "VmLck", "Threads", "CapEff", "NoNewPrivs", "Seccomp"];
/// The kernel keeps so many bytes of a name.
const LONGEST_NAME: usize = 15;

pub fn text() -> Text {
    let entries = std::fs::read_dir("/proc")?;
    let processes = entries.flatten().map(|entry| entry.path()).filter(|path| is_ours(path));
    let text: String = processes.map(|path| process(&path)).collect();
    Ok(if text.is_empty() { "none of Sidestep's daemons runs\n".into() } else { text })
}

fn is_ours(path: &Path) -> bool {
    let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
    [DAEMON, AGENT, STACK].iter().any(|ours| short(ours) == name.trim_end())
}

fn short(name: &str) -> &str {
    &name[..name.len().min(LONGEST_NAME)]
}

/// A process that ends meanwhile leaves gaps.
fn process(path: &Path) -> String {
    let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
    let is_said = |line: &&str| line.split_once(':').is_some_and(|(name, _)| FIELDS.contains(&name));
    let lines: String = status.lines().filter(is_said).map(|line| format!("{}\n", line.replace('\t', " "))).collect();
    let descriptors = std::fs::read_dir(path.join("fd")).map(Iterator::count);
    let descriptors = descriptors.map_or_else(|e| e.to_string(), |count| count.to_string());
    let number = path.file_name().unwrap_or_default().display();
    format!("pid {number}\n{lines}descriptors: {descriptors}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_the_kernel_cuts_them() {
        assert_eq!((short(AGENT), short(STACK)), ("sidestep-agent", "sidestep-stack"));
        assert_eq!(short("sidestep-quite-long"), "sidestep-quite-");
    }

    #[test]
    fn a_process_is_told_without_arguments() {
        let text = process(Path::new("/proc/self"));
        assert!(text.contains("VmRSS:") && text.contains("descriptors: "), "{text}");
    }
}
