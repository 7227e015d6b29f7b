//! Every combination of the axes' values.

use super::Text;
use indexmap::IndexMap;

/// axis -> its value in a cell.
pub type Values = IndexMap<String, String>;

/// In the file's order, the last axis changing the fastest. Without axes there is one empty cell.
pub fn cells(axes: &IndexMap<String, Vec<Text>>) -> Vec<Values> {
    axes.iter().fold(vec![Values::new()], |cells, (axis, values)| {
        cells.iter().flat_map(|cell| values.iter().map(|value| with(cell, axis, value))).collect()
    })
}

fn with(cell: &Values, axis: &str, value: &Text) -> Values {
    let mut cell = cell.clone();
    cell.insert(axis.into(), value.raw().into());
    cell
}

/// Whether the cell's values are among those given; an axis that is not given may have any value.
pub fn among(given: &IndexMap<String, Vec<Text>>, cell: &Values) -> bool {
    given.iter().all(|(axis, values)| cell.get(axis).is_some_and(|value| values.iter().any(|each| each.raw() == value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(pairs: &[(&str, &[&str])]) -> IndexMap<String, Vec<Text>> {
        let texts = |values: &[&str]| values.iter().map(|&value| value.into()).collect();
        pairs.iter().map(|(axis, values)| (axis.to_string(), texts(values))).collect()
    }

    #[test]
    fn cells_are_all_combinations() {
        let cells = cells(&axes(&[("rules", &["0", "9"]), ("connections", &["1", "2", "3"])]));
        let titles: Vec<String> = cells.iter().map(|c| format!("{}/{}", c["rules"], c["connections"])).collect();
        assert_eq!(titles, ["0/1", "0/2", "0/3", "9/1", "9/2", "9/3"]);
    }

    #[test]
    fn without_axes_there_is_one_cell() {
        assert_eq!(cells(&axes(&[])), [Values::new()]);
    }

    #[test]
    fn a_cell_is_among_values_of_some_axes() {
        let cell = Values::from([("rules".into(), "9".into()), ("connections".into(), "1".into())]);
        for (given, answer) in
            [(axes(&[]), true), (axes(&[("rules", &["0", "9"])]), true), (axes(&[("rules", &["0"])]), false)]
        {
            assert_eq!(among(&given, &cell), answer);
        }
    }
}
