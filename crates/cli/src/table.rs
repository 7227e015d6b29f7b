//! Plain-text tables, and numbers in readable form.

use std::fmt;

/// Columns are two spaces apart, and as wide as their widest cell if the terminal is wide enough.
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A heading that starts with `>` makes a column of numbers, aligned to the right.
    pub fn new(headings: &[&str]) -> Table {
        Table {
            right: headings.iter().map(|h| h.starts_with('>')).collect(),
            rows: vec![headings.iter().map(|h| h.trim_start_matches('>').into()).collect()],
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| printable(&cell)).collect();
        self.rows.push(cells);
    }
}

/// Replaces control characters: names of processes come from anywhere, and must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Columns of text are not narrower than this, or than their heading.
const NARROWEST: usize = 8;
/// Width limit of columns if the output's width is unlimited (a pipe, a file). Longer cells exceed their column: a single one must
/// not push those of all other rows to the right.
const WIDEST: usize = 48;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(terminal_width()))
    }
}

/// The width of the output's terminal; None: the output is a pipe or a file.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

impl Table {
    fn render(&self, limit: Option<usize>) -> String {
        let widths = match limit {
            None => self.widths().into_iter().zip(&self.right).map(narrowed(WIDEST)).collect(),
            Some(limit) => self.fitted(limit),
        };
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, &width)| lines(cell, limit.map(|_| width))).collect();
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let parts = cells.iter().map(|cell| cell.get(line).map_or("", String::as_str));
                text.push_str(self.line(parts, &widths).trim_end());
                text.push('\n');
            }
        }
        text
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, &width), &right) in cells.zip(widths).zip(&self.right) {
            let cell = if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str(&cell);
            line.push_str("  ");
        }
        line
    }

    /// Each column's widest cell.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max();
        (0..self.right.len()).map(|column| width(column).unwrap_or(0)).collect()
    }

    /// Fits all columns within the limit: the widest columns of text are narrowed to one common width, as far as necessary.
    fn fitted(&self, limit: usize) -> Vec<usize> {
        let least = |column: usize| length(&self.rows[0][column]).max(NARROWEST);
        let natural = self.widths();
        let at = |cap: usize| -> Vec<usize> {
            let columns = natural.iter().copied().zip(&self.right).enumerate();
            columns.map(|(column, cell)| narrowed(cap.max(least(column)))(cell)).collect()
        };
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let widest = natural.iter().copied().max().unwrap_or(0);
        (NARROWEST..=widest).rev().map(at).find(|widths| total(widths) <= limit).unwrap_or_else(|| at(NARROWEST))
    }
}

/// Columns of numbers are never narrowed.
fn narrowed(cap: usize) -> impl Fn((usize, &bool)) -> usize {
    move |(width, &right)| if right { width } else { width.min(cap) }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Wraps a cell's words; a word that is too long loses its middle.
fn lines(cell: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width.filter(|&width| length(cell) > width) else { return vec![cell.into()] };
    let mut lines = vec![String::new()];
    for word in cell.split(' ').map(|word| shortened(word, width)) {
        let line = lines.last_mut().expect("the list starts with a line");
        if line.is_empty() {
            *line = word;
        } else if length(line) + 1 + length(&word) <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

fn shortened(word: &str, width: usize) -> String {
    let long = length(word);
    if long <= width {
        return word.into();
    }
    let (head, tail) = (width / 2, width - width / 2 - 1);
    let keep = |(at, c)| (at < head || at >= long - tail).then_some(c).or((at == head).then_some('…'));
    word.chars().enumerate().filter_map(keep).collect()
}

/// `1.5 M`: three digits and a decimal unit.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["", " k", " M", " G", " T", " P"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">N"]);
        table.row(["a".into(), "5".into()]);
        table.row(["long\x1bname".into(), "1000".into()]);
        assert_eq!(table.to_string(), "NAME          N\na             5\nlong?name  1000\n");
    }

    fn services() -> Table {
        let mut table = Table::new(&["NAMESPACE", "SERVICE", "ADDRESSES", ">PICKS"]);
        table.row(["shop".into(), "cart".into(), "10.96.0.10:80".into(), "7".into()]);
        table.row([
            "n".repeat(63),
            format!("first{}last", "x".repeat(244)),
            "10.96.0.11:80, NodePort 30080".into(),
            "1234567".into(),
        ]);
        table
    }

    #[test]
    fn long_names_fit_into_the_terminal() {
        for limit in [60, 80, 120, 200] {
            let text = services().render(Some(limit));
            let longest = text.lines().map(length).max().unwrap();
            assert!(longest <= limit && longest > limit - 4, "{limit}: {longest}\n{text}");
            assert!(text.lines().next().unwrap().contains("SERVICE "), "{text}");
            assert!(text.contains("1234567") && text.contains("first") && text.contains("last"), "{text}");
        }
        // Numbers and headings are never cut, whatever the limit.
        assert!(services().render(Some(10)).contains("1234567"));
    }

    #[test]
    fn words_go_on_in_the_next_line_of_their_column() {
        let mut table = Table::new(&[">N", "MEANING"]);
        table.row(["5".into(), "one two three four".into()]);
        assert_eq!(table.render(Some(12)), "N  MEANING\n5  one two\n   three\n   four\n");
        assert_eq!(table.render(Some(21)), "N  MEANING\n5  one two three four\n");
    }

    /// Scripts get every name whole, and readers get columns.
    #[test]
    fn in_a_pipe_nothing_is_cut_and_only_the_long_row_is_long() {
        let text = services().render(None);
        assert!(text.contains(&"x".repeat(244)));
        let widths: Vec<_> = text.lines().map(length).collect();
        assert!(widths[0] < 150 && widths[1] < 150 && widths[2] > 300, "{widths:?}");
    }

    #[test]
    fn sizes_are_short() {
        let cases =
            [(0, "0"), (999, "999"), (1000, "1.0 k"), (99_999, "100 k"), (1_500_000, "1.5 M"), (999_999, "1.0 M")];
        for (n, text) in cases {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(bytes(u64::MAX), "18447 P");
    }
}
