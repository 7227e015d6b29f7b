//! The candidates for the interval; intervals of the median unless named otherwise.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use sidestep_lab::stats::median_interval;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

pub type Ends = (f64, f64);
pub type Method = fn(&[f64], f64, &mut ChaCha8Rng) -> Ends;
type Estimate = fn(&[f64]) -> f64;

const RESAMPLES: usize = 1000;

pub const METHODS: &[(&str, Method)] = &[
    ("smoothed bootstrap, expanded percentiles (chosen)", |values, confidence, _| chosen(values, confidence)),
    ("bootstrap, percentiles", |values, confidence, rng| {
        ends(&bootstrap(values, median, rng), (1.0 - confidence) / 2.0)
    }),
    ("bootstrap, expanded percentiles", |values, confidence, rng| expanded(values, confidence, median, rng)),
    ("bootstrap, BCa", bca),
    ("Hodges and Lehmann's estimate, percentiles", |values, confidence, rng| {
        ends(&bootstrap(values, hodges_lehmann, rng), (1.0 - confidence) / 2.0)
    }),
    ("Hodges and Lehmann's estimate, expanded", |values, confidence, rng| {
        expanded(values, confidence, hodges_lehmann, rng)
    }),
    ("mean without a fifth at each end, expanded", |values, confidence, rng| {
        expanded(values, confidence, trimmed, rng)
    }),
    ("the same mean, bootstrap-t", studentized),
    ("ranks of signs, exact (no bootstrap)", |values, confidence, _| signs(values, confidence)),
];

fn chosen(values: &[f64], confidence: f64) -> Ends {
    let (_, interval) = median_interval(values, confidence).expect("rounds enough");
    (interval.low, interval.high)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

fn at(sorted: &[f64], part: f64) -> f64 {
    let place = part.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + place.fract() * (above - below)
}

fn ends(sorted: &[f64], tail: f64) -> Ends {
    (at(sorted, tail), at(sorted, 1.0 - tail))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    at(&sorted(values), 0.5)
}

fn hodges_lehmann(values: &[f64]) -> f64 {
    let mut means: Vec<f64> =
        (0..values.len()).flat_map(|a| (0..=a).map(move |b| (values[a] + values[b]) / 2.0)).collect();
    let middle = means.len() / 2;
    *means.select_nth_unstable_by(middle, f64::total_cmp).1
}

fn trimmed(values: &[f64]) -> f64 {
    let cut = values.len() / 5;
    mean(&sorted(values)[cut..values.len() - cut])
}

fn resample<T>(values: &[f64], rng: &mut ChaCha8Rng, of: impl Fn(&[f64]) -> T) -> Vec<T> {
    let mut one = || values.iter().map(|_| values[rng.random_range(0..values.len())]).collect::<Vec<f64>>();
    (0..RESAMPLES).map(|_| of(&one())).collect()
}

fn bootstrap(values: &[f64], estimate: Estimate, rng: &mut ChaCha8Rng) -> Vec<f64> {
    sorted(&resample(values, rng, estimate))
}

fn expanded(values: &[f64], confidence: f64, estimate: Estimate, rng: &mut ChaCha8Rng) -> Ends {
    let count = values.len() as f64;
    let student = StudentsT::new(0.0, 1.0, count - 1.0).unwrap().inverse_cdf((1.0 + confidence) / 2.0);
    let tail = Normal::standard().cdf(-student * (count / (count - 1.0)).sqrt());
    ends(&bootstrap(values, estimate, rng), tail)
}

fn bca(values: &[f64], confidence: f64, rng: &mut ChaCha8Rng) -> Ends {
    let (normal, all, middle) = (Normal::standard(), bootstrap(values, median, rng), median(values));
    let below = |limit: f64| all.partition_point(|each| *each < limit) as f64;
    let part = (below(middle) + below(middle.next_up())) / 2.0 / RESAMPLES as f64;
    let bias = normal.inverse_cdf(part.clamp(0.001, 0.999));
    let without = |place: usize| median(&[&values[..place], &values[place + 1..]].concat());
    let jackknife: Vec<f64> = (0..values.len()).map(without).collect();
    let power = |power| jackknife.iter().map(|each| (mean(&jackknife) - each).powi(power)).sum::<f64>();
    let acceleration = if power(2) > 0.0 { power(3) / 6.0 / power(2).powf(1.5) } else { 0.0 };
    let place = |z: f64| normal.cdf(bias + (bias + z) / (1.0 - acceleration * (bias + z)));
    let z = normal.inverse_cdf((1.0 - confidence) / 2.0);
    (at(&all, place(z)), at(&all, place(-z)))
}

/// The 20 % trimmed mean and its standard error.
fn with_error(values: &[f64]) -> (f64, f64) {
    let (count, cut) = (values.len(), values.len() / 5);
    let all = sorted(values);
    let drawn_in: Vec<f64> = (0..count).map(|place| all[place.clamp(cut, count - cut - 1)]).collect();
    let squares: f64 = drawn_in.iter().map(|each| (each - mean(&drawn_in)).powi(2)).sum();
    let kept = 1.0 - 2.0 * cut as f64 / count as f64;
    (trimmed(values), (squares / (count - 1) as f64 / count as f64).sqrt() / kept)
}

fn studentized(values: &[f64], confidence: f64, rng: &mut ChaCha8Rng) -> Ends {
    let (middle, error) = with_error(values);
    let distances = resample(values, rng, |values| {
        let (other, error) = with_error(values);
        if error > 0.0 { ((other - middle) / error).abs() } else { f64::MAX }
    });
    let width = at(&sorted(&distances), confidence) * error;
    (middle - width, middle + width)
}

/// The interval of Wilcoxon's signed ranks: the means of all pairs, without as many at each end as the confidence allows.
fn signs(values: &[f64], confidence: f64) -> Ends {
    let mut ways = vec![1.0];
    for rank in 1..=values.len() {
        let shifted = [vec![0.0; rank], ways.clone()].concat();
        ways.resize(shifted.len(), 0.0);
        ways.iter_mut().zip(shifted).for_each(|(way, more)| *way += more);
    }
    let allowed = (1.0 - confidence) / 2.0 * 2f64.powi(values.len() as i32);
    let mut so_far = 0.0;
    let cut = ways
        .iter()
        .take_while(|each| {
            so_far += **each;
            so_far <= allowed
        })
        .count()
        - 1;
    let means: Vec<f64> = (0..values.len()).flat_map(|a| (0..=a).map(move |b| (values[a] + values[b]) / 2.0)).collect();
    let means = sorted(&means);
    (means[cut], means[means.len() - 1 - cut])
}
