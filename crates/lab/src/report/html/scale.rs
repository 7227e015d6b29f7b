//! Maps values to positions in a drawing, and chooses round numbers for ticks.

/// Maps a range of values to a range of positions, logarithmically if the values are far apart.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

/// From this ratio of the values on the scale is logarithmic.
const FAR: f64 = 12.0;

/// Free part of the range on both sides.
const MARGIN: f64 = 0.04;

impl Scale {
    /// Fits the values; None: there is no finite one.
    pub fn fit(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Scale> {
        let (low, high) = range(values)?;
        let log = low > 0.0 && high / low > FAR;
        let (low, high) = if log { (low.ln(), high.ln()) } else { (low, high) };
        // If all values are equal, adds some room around them.
        let room = if high > low { (high - low) * MARGIN } else { high.abs().max(1e-12) * MARGIN };
        Some(Scale { low: low - room, high: high + room, from, to, log })
    }

    /// Begins at zero, for bars.
    pub fn from_zero(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Scale> {
        let (_, high) = range(values)?;
        Some(Scale { low: 0.0, high: if high > 0.0 { high } else { 1.0 }, from, to, log: false })
    }

    pub fn at(&self, value: f64) -> f64 {
        let value = if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// About `many` round numbers in the range.
    pub fn ticks(&self, many: usize) -> Vec<f64> {
        if self.log { self.powers(many) } else { self.steps(many) }
    }

    fn steps(&self, many: usize) -> Vec<f64> {
        let step = round_up((self.high - self.low) / many as f64);
        let first = (self.low / step).ceil() as i64;
        // Slightly beyond the end, since the division is not exact.
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }

    fn powers(&self, many: usize) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let of = |steps: &[f64]| -> Vec<f64> {
            let every = exponents.clone().flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            every.filter(|tick| (low..=high).contains(tick)).collect()
        };
        let sets = [of(&[1.0, 2.0, 5.0]), of(&[1.0, 3.0]), of(&[1.0])];
        sets.iter().find(|ticks| ticks.len() <= many + 1).unwrap_or(&sets[2]).clone()
    }
}

fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.map(|value| (value, value)).reduce(|(low, high), (one, _)| (low.min(one), high.max(one)))
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_up(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|one| one * power).find(|one| *one >= step * 0.999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Scale::fit([100.0, 400.0], 0.0, 10.0).expect("values");
        assert_eq!(scale.ticks(4), [100.0, 200.0, 300.0, 400.0]);
        assert_eq!(Scale::from_zero([0.03], 0.0, 1.0).expect("one").ticks(3), [0.0, 0.01, 0.02, 0.03]);
    }

    #[test]
    fn far_values_are_on_powers() {
        let scale = Scale::fit([1e-6, 1e-3], 0.0, 100.0).expect("values");
        assert_eq!(scale.ticks(5).len(), 4);
        let middle = scale.at(1e-3) + scale.at(1e-6);
        assert!((middle - 100.0).abs() < 1e-6, "symmetric: {middle}");
    }

    #[test]
    fn equal_values_have_room_and_none_has_no_scale() {
        let scale = Scale::fit([5.0, 5.0], 0.0, 10.0).expect("values");
        assert!((scale.at(5.0) - 5.0).abs() < 1e-9);
        assert!(Scale::fit([f64::NAN], 0.0, 1.0).is_none());
    }
}
