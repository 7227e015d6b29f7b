//! What the policies of one Kubernetes namespace may cost while those of all pods of a node are worked out. Anybody may write
//! policies, and the agent's main thread works them out, again at each change of a pod.

use std::fmt;

/// Entries, those of several rules counted several times: four times the room of the tables. What would be far too much for the
/// tables is not worked out just to find that.
const MOST_EXPANDED: usize = 1 << 22;
/// Comparisons of labels with parts of selectors, which together take about a second. 200 policies of one namespace, with 20 peers each
/// that compare one label, among 5,000 identities take 20 million; rules that match nobody have no entries, but cost time.
const MOST_LOOKS: usize = 1 << 25;
/// Comparisons of ranges with each other. Lists of 1,000 ranges at 5 ports, for 20 kinds of pods, take 100 million.
const MOST_COMPARED: usize = 1 << 27;

/// What is left.
#[derive(Debug)]
pub(super) struct Budget {
    expanded: usize,
    looks: usize,
    compared: usize,
}

/// Why policies have no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TooMuch {
    /// This table has not room for the entries of one pod.
    Entries(&'static str),
    /// The namespace's policies expand to too many entries.
    Expanded,
    /// To compare the namespace's selectors with labels takes too long.
    Looks,
    /// To compare the namespace's ranges with each other takes too long.
    Compared,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        const HOW: &str = "shorten its policies' lists or selectors";
        match self {
            TooMuch::Entries(table) => write!(f, "map {table} has no room for the entries of one pod"),
            TooMuch::Expanded => write!(
                f,
                "the policies of its namespace have more than {MOST_EXPANDED} entries, those of several rules counted \
                 several times: {HOW}"
            ),
            TooMuch::Looks => write!(
                f,
                "the selectors of its namespace's policies would have to be compared with labels more than \
                 {MOST_LOOKS} times: {HOW}"
            ),
            TooMuch::Compared => write!(
                f,
                "the ranges of its namespace's policies would have to be compared with each other more than \
                 {MOST_COMPARED} times: {HOW}"
            ),
        }
    }
}

impl std::error::Error for TooMuch {}

impl Default for Budget {
    fn default() -> Budget {
        Budget { expanded: MOST_EXPANDED, looks: MOST_LOOKS, compared: MOST_COMPARED }
    }
}

impl Budget {
    /// Spends entries.
    pub(super) fn expand(&mut self, entries: usize) -> Result<(), TooMuch> {
        spend(&mut self.expanded, entries, TooMuch::Expanded)
    }

    /// Spends comparisons of labels. What exceeds the budget uses it up: even to find out how large each further selector is takes
    /// time.
    pub(super) fn look(&mut self, times: usize) -> Result<(), TooMuch> {
        let spent = spend(&mut self.looks, times, TooMuch::Looks);
        if spent.is_err() {
            self.looks = 0;
        }
        spent
    }

    /// Spends comparisons of ranges.
    pub(super) fn compare(&mut self, times: usize) -> Result<(), TooMuch> {
        spend(&mut self.compared, times, TooMuch::Compared)
    }
}

fn spend(left: &mut usize, cost: usize, why: TooMuch) -> Result<(), TooMuch> {
    *left = left.checked_sub(cost).ok_or(why)?;
    Ok(())
}
