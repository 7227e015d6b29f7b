//! Plain-text tables.

use std::fmt;

/// Columns are as wide as their widest cell, and two spaces apart.
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A heading that starts with `>` makes a column of numbers, aligned to the right.
    pub fn new(headings: &[&str]) -> Table {
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').into());
        Table { right: headings.iter().map(|heading| heading.starts_with('>')).collect(), rows: vec![names.collect()] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// A line across all columns, separated from what is before it.
    pub fn heading(&mut self, title: &str) {
        self.rows.push(Vec::new());
        self.rows.push(vec![printable(title)]);
    }

    fn width(&self, column: usize) -> usize {
        let rows = self.rows.iter().filter(|row| row.len() > 1);
        rows.filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

/// Replaces control characters: names come from files of others, and must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// At most `most` characters; the last one marks a cut.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['\u{2026}']).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<_> = (0..self.right.len()).map(|column| self.width(column)).collect();
        for row in &self.rows {
            let padded = row.iter().zip(&widths).zip(&self.right).map(|((cell, &width), &right)| {
                if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            writeln!(f, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">N"]);
        table.row(["a".into(), "5 µs".into()]);
        table.row(["long\x1bname".into(), "1000 µs".into()]);
        assert_eq!(table.to_string(), "NAME             N\na             5 µs\nlong?name  1000 µs\n");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!((cut("four", 4), cut("fives", 4)), ("four".into(), "fiv…".into()));
    }
}
