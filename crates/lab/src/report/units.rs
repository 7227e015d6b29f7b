//! Numbers for people: three digits, and the unit that makes them short.

use crate::result::Figure;
use crate::stats::Interval;

/// Stands for a missing value.
pub const NOTHING: &str = "\u{2013}";

const TIMES: [(f64, &str); 4] = [(1e-9, "ns"), (1e-6, "\u{b5}s"), (1e-3, "ms"), (1.0, "s")];
const DECIMAL: [(f64, &str); 5] = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];

/// A value of this figure, with its unit: `12.3 µs`, `12.4 k/s`, `34.1 MB`.
pub fn value(figure: Figure, value: f64) -> String {
    with(figure, value, &digits)
}

/// The same for the axis of a chart: without trailing zeros.
pub fn tick(figure: Figure, value: f64) -> String {
    with(figure, value, &|number| short(number))
}

pub fn seconds(value: f64) -> String {
    scaled(value, &TIMES, &digits)
}

pub fn bytes(value: f64) -> String {
    scaled(value, &DECIMAL, &digits) + "B"
}

/// `1.20 M`
pub fn count(value: f64) -> String {
    glued(scaled(value, &DECIMAL, &digits), "")
}

fn with(figure: Figure, value: f64, digits: &dyn Fn(f64) -> String) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    match figure {
        Figure::Rate => glued(scaled(value, &DECIMAL, digits), "/s"),
        Figure::Throughput => scaled(value, &DECIMAL, digits) + "B/s",
        Figure::Memory => scaled(value, &DECIMAL, digits) + "B",
        Figure::HighestCpu => digits(value) + " CPUs",
        Figure::Switches | Figure::Calls => glued(scaled(value, &DECIMAL, digits), ""),
        _ => scaled(value, &TIMES, digits),
    }
}

/// `12.4 k` with `/s`; `12.4 ` without the space: `12.4/s`.
fn glued(number: String, unit: &str) -> String {
    number.trim_end().to_owned() + unit
}

/// In the largest unit in which the value is at least one; in the smallest unit if there is none.
fn scaled(value: f64, units: &[(f64, &str)], digits: &dyn Fn(f64) -> String) -> String {
    // So that 999.6 µs does not become 1000 µs.
    let rounded = value.abs() * 1.0005;
    let fitting = units.iter().rev().find(|(unit, _)| rounded >= *unit);
    let none = value == 0.0;
    let (unit, name) = if none { units.last().filter(|last| last.0 == 1.0) } else { fitting }.unwrap_or(&units[0]);
    format!("{} {name}", digits(value / unit))
}

/// Three digits: `1.20`, `12.3`, `123`, `1234`.
fn digits(number: f64) -> String {
    let decimals = match number.abs() {
        small if small < 9.995 => 2,
        small if small < 99.95 => 1,
        _ => 0,
    };
    minus(format!("{number:.decimals$}"))
}

/// At most four digits, without trailing zeros.
fn short(number: f64) -> String {
    let text = format!("{number:.*}", if number.abs() < 9.9995 { 3 } else { 2 });
    minus(text.trim_end_matches('0').trim_end_matches('.').to_owned())
}

/// `−12.3 %`: how much a ratio differs from one; large ratios as a factor: `×12.3`.
pub fn change(ratio: f64) -> String {
    if !ratio.is_finite() {
        return NOTHING.into();
    }
    if ratio >= 10.0 {
        return format!("\u{d7}{}", digits(ratio));
    }
    let percent = (ratio - 1.0) * 100.0;
    let decimals = if percent.abs() < 99.95 { 1 } else { 0 };
    let text = minus(format!("{percent:+.decimals$} %"));
    if text.chars().any(|digit| ('1'..='9').contains(&digit)) { text } else { "\u{b1}0.0 %".into() }
}

/// The same for the axis of a chart.
pub fn change_tick(ratio: f64) -> String {
    if ratio >= 10.0 { format!("\u{d7}{}", short(ratio)) } else { change(ratio).replace(".0 %", " %") }
}

/// `−14.0 % … −10.1 %`
pub fn changes(interval: Interval) -> String {
    format!("{} \u{2026} {}", end(interval.low), end(interval.high))
}

/// An end of an interval close to no change gets more digits, since the verdict depends on whether it includes no change.
fn end(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    if (0.005..0.05).contains(&percent.abs()) { minus(format!("{percent:+.2} %")) } else { change(ratio) }
}

/// `5 %`
pub fn part(part: f64) -> String {
    format!("{} %", short(part * 100.0))
}

/// `4 min 12 s`
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, few) => format!("{few} s"),
        (0, minutes, few) => format!("{minutes} min {few} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// `1 round`, `5 rounds`
pub fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The typographic minus sign, which is as wide as `+` and cannot be taken for a hyphen.
fn minus(text: String) -> String {
    text.replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        let cases = [
            (Figure::P50, 12.34e-6, "12.3 µs"),
            (Figure::P50, 0.0012, "1.20 ms"),
            (Figure::P50, 0.00099999, "1.00 ms"),
            (Figure::P99, 5e-10, "0.50 ns"),
            (Figure::P99, 12.0, "12.0 s"),
            (Figure::Cpu, 0.0, "0.00 s"),
            (Figure::Rate, 12_400.0, "12.4 k/s"),
            (Figure::Rate, 740.0, "740/s"),
            (Figure::Rate, 0.0, "0.00/s"),
            (Figure::Throughput, 1.2e9, "1.20 GB/s"),
            (Figure::Throughput, 12.0, "12.0 B/s"),
            (Figure::Memory, 34.1e6, "34.1 MB"),
            (Figure::HighestCpu, 1.844, "1.84 CPUs"),
            (Figure::Switches, 2.0, "2.00"),
            (Figure::P50, f64::NAN, NOTHING),
        ];
        for (figure, number, text) in cases {
            assert_eq!(value(figure, number), text);
        }
        assert_eq!(seconds(0.25), "250 ms");
        assert_eq!(bytes(16e9), "16.0 GB");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick(Figure::P50, 200e-6), "200 µs");
        assert_eq!(tick(Figure::P50, 0.0015), "1.5 ms");
        assert_eq!(tick(Figure::Rate, 20_000.0), "20 k/s");
        assert_eq!(tick(Figure::Rate, 0.0), "0/s");
    }

    #[test]
    fn ratios_are_changes() {
        let cases = [
            (0.877, "−12.3 %"),
            (1.0, "±0.0 %"),
            (0.9999, "±0.0 %"),
            (2.5, "+150 %"),
            (12.34, "×12.3"),
            (f64::INFINITY, NOTHING),
        ];
        for (ratio, text) in cases {
            assert_eq!(change(ratio), text);
        }
        assert_eq!(changes(Interval { low: 0.86, high: 0.9 }), "−14.0 % … −10.0 %");
    }

    #[test]
    fn ends_keep_off_no_change() {
        assert_eq!(changes(Interval { low: 0.936, high: 0.9997 }), "−6.4 % … −0.03 %");
        assert_eq!(changes(Interval { low: 1.0, high: 1.0004 }), "±0.0 % … +0.04 %");
    }

    #[test]
    fn counts_and_times_are_words() {
        assert_eq!((many(1, "round"), many(0, "round")), ("1 round".into(), "0 rounds".into()));
        assert_eq!(duration(252.0), "4 min 12 s");
        assert_eq!(duration(4.2), "4 s");
        assert_eq!(duration(7260.0), "2 h 1 min");
        assert_eq!(part(0.05), "5 %");
    }
}
