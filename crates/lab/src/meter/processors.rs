//! The machine's processors, by number.

/// The processors that are online.
pub fn processors() -> std::io::Result<Vec<usize>> {
    std::fs::read_to_string("/sys/devices/system/cpu/online").map(|online| listed(&online).collect())
}

/// Parses `0-3,6`.
fn listed(online: &str) -> impl Iterator<Item = usize> {
    online.trim().split(',').filter_map(range).flatten()
}

fn range(words: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = words.split_once('-').unwrap_or((words, words));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_are_online() {
        assert_eq!(listed("0-3,6\n").collect::<Vec<_>>(), [0, 1, 2, 3, 6]);
        assert_eq!(listed("0\n").collect::<Vec<_>>(), [0]);
    }
}
