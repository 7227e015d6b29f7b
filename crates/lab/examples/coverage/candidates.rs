//! Intervals between which `sidestep_lab::stats` had to choose.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

pub type Ends = (f64, f64);
pub type Method = fn(&[f64], f64, &mut ChaCha8Rng) -> Ends;
const RESAMPLES: usize = 1000;

pub const METHODS: &[(&str, Method)] = &[
    ("sign (order)", |v, c, _| sign(v, c)),
    ("OURS", |v, c, _| sidestep_lab::stats::median_interval(v, c).map(|(_, i)| (i.low, i.high)).unwrap()),
    ("wilcoxon", |v, c, _| wilcoxon(v, c)),
    ("t", |v, c, _| student(v, c)),
    ("med pct", |v, c, r| middle(&boot(v, r, median), (1.0 - c) / 2.0)),
    ("med exp", |v, c, r| middle(&boot(v, r, median), expanded(v.len(), c))),
    ("med BCa", |v, c, r| bca(v, c, &boot(v, r, median), median)),
    ("med smooth sd", |v, c, r| middle(&smooth(v, r, sd(v)), (1.0 - c) / 2.0)),
    ("med smooth sd exp", |v, c, r| middle(&smooth(v, r, sd(v)), expanded(v.len(), c))),
    ("med smooth mad exp", |v, c, r| middle(&smooth(v, r, mad(v)), expanded(v.len(), c))),
    ("HL pct", |v, c, r| middle(&boot(v, r, hodges), (1.0 - c) / 2.0)),
    ("HL exp", |v, c, r| middle(&boot(v, r, hodges), expanded(v.len(), c))),
    ("trim-t sym", |v, c, r| trim_t(v, c, r)),
    ("mean pct exp", |v, c, r| middle(&boot(v, r, |v| v.iter().sum::<f64>() / v.len() as f64), expanded(v.len(), c))),
    ("trim pct exp", |v, c, r| middle(&boot(v, r, trimmed), expanded(v.len(), c))),
];

pub fn median(v: &mut [f64]) -> f64 {
    let n = v.len();
    let (low, mid, _) = v.select_nth_unstable_by(n / 2, f64::total_cmp);
    if n % 2 == 1 { *mid } else { (*mid + low.iter().copied().fold(f64::MIN, f64::max)) / 2.0 }
}
pub fn hodges(v: &mut [f64]) -> f64 {
    let mut m = Vec::with_capacity(v.len() * (v.len() + 1) / 2);
    for i in 0..v.len() {
        for j in i..v.len() {
            m.push((v[i] + v[j]) / 2.0)
        }
    }
    median(&mut m)
}
fn trimmed(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    let g = v.len() / 5;
    let k = &v[g..v.len() - g];
    k.iter().sum::<f64>() / k.len() as f64
}
fn boot(v: &[f64], r: &mut ChaCha8Rng, f: fn(&mut [f64]) -> f64) -> Vec<f64> {
    let mut s = vec![0.0; v.len()];
    let mut all: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for x in &mut s {
                *x = v[r.random_range(0..v.len())];
            }
            f(&mut s)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}
fn smooth(v: &[f64], r: &mut ChaCha8Rng, scale: f64) -> Vec<f64> {
    let h = scale / (v.len() as f64).sqrt();
    let mut s = vec![0.0; v.len()];
    let mut all: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for x in &mut s {
                let e: f64 = StandardNormal.sample(r);
                *x = v[r.random_range(0..v.len())] + h * e;
            }
            median(&mut s)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}
fn at(v: &[f64], p: f64) -> f64 {
    let x = p.clamp(0.0, 1.0) * (v.len() - 1) as f64;
    let (i, f) = (x.floor() as usize, x.fract());
    v[i] + f * (v[(i + 1).min(v.len() - 1)] - v[i])
}
fn middle(all: &[f64], tail: f64) -> Ends {
    (at(all, tail), at(all, 1.0 - tail))
}
fn tq(n: usize, c: f64) -> f64 {
    StudentsT::new(0.0, 1.0, (n - 1) as f64).unwrap().inverse_cdf((1.0 + c) / 2.0)
}
fn expanded(n: usize, c: f64) -> f64 {
    Normal::standard().cdf(-tq(n, c) * (n as f64 / (n - 1) as f64).sqrt())
}
fn sd(v: &[f64]) -> f64 {
    let m = v.iter().sum::<f64>() / v.len() as f64;
    (v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (v.len() - 1) as f64).sqrt()
}
fn mad(v: &[f64]) -> f64 {
    let m = median(&mut v.to_vec());
    1.4826 * median(&mut v.iter().map(|x| (x - m).abs()).collect::<Vec<_>>())
}
fn student(v: &[f64], c: f64) -> Ends {
    let m = v.iter().sum::<f64>() / v.len() as f64;
    let w = tq(v.len(), c) * sd(v) / (v.len() as f64).sqrt();
    (m - w, m + w)
}
fn sign(v: &[f64], c: f64) -> Ends {
    let mut s = v.to_vec();
    s.sort_by(f64::total_cmp);
    let n = v.len();
    let (mut p, mut cum, mut k) = (0.5f64.powi(n as i32), 0.0, 0);
    while cum + p <= (1.0 - c) / 2.0 {
        cum += p;
        k += 1;
        p = p * (n - k + 1) as f64 / k as f64;
    }
    if k == 0 {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    (s[k - 1], s[n - k])
}
fn wilcoxon(v: &[f64], c: f64) -> Ends {
    let n = v.len();
    let mut sums = vec![1.0f64];
    for r in 1..=n {
        let mut l = sums.clone();
        l.resize(sums.len() + r, 0.0);
        for (i, e) in sums.iter().enumerate() {
            l[i + r] += e
        }
        sums = l
    }
    let total: f64 = sums.iter().sum();
    let (mut cum, mut k) = (0.0, 0);
    while (cum + sums[k]) / total <= (1.0 - c) / 2.0 {
        cum += sums[k];
        k += 1
    }
    if k == 0 {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let mut m = vec![];
    for i in 0..n {
        for j in i..n {
            m.push((v[i] + v[j]) / 2.0)
        }
    }
    m.sort_by(f64::total_cmp);
    (m[k - 1], m[m.len() - k])
}
fn bca(v: &[f64], c: f64, all: &[f64], f: fn(&mut [f64]) -> f64) -> Ends {
    let nrm = Normal::standard();
    let est = f(&mut v.to_vec());
    let below =
        all.iter().filter(|x| **x < est).count() as f64 + all.iter().filter(|x| **x == est).count() as f64 / 2.0;
    let z0 = nrm.inverse_cdf((below / all.len() as f64).clamp(0.001, 0.999));
    let jack: Vec<f64> = (0..v.len())
        .map(|i| {
            let mut w = v.to_vec();
            w.remove(i);
            f(&mut w)
        })
        .collect();
    let m = jack.iter().sum::<f64>() / jack.len() as f64;
    let (a3, a2) = jack.iter().fold((0.0, 0.0), |(a, b), x| (a + (m - x).powi(3), b + (m - x).powi(2)));
    let acc = if a2 > 0.0 { a3 / (6.0 * a2.powf(1.5)) } else { 0.0 };
    let pos = |z: f64| nrm.cdf(z0 + (z0 + z) / (1.0 - acc * (z0 + z)));
    let z = nrm.inverse_cdf((1.0 - c) / 2.0);
    (at(all, pos(z)), at(all, pos(-z)))
}
fn trim_stat(v: &mut [f64]) -> (f64, f64) {
    let n = v.len();
    v.sort_by(f64::total_cmp);
    let g = n / 5;
    let m = v[g..n - g].iter().sum::<f64>() / (n - 2 * g) as f64;
    let w: Vec<f64> = (0..n).map(|i| v[i.clamp(g, n - g - 1)]).collect();
    (m, sd(&w) / ((1.0 - 2.0 * g as f64 / n as f64) * (n as f64).sqrt()))
}
fn trim_t(v: &[f64], c: f64, r: &mut ChaCha8Rng) -> Ends {
    let (m, se) = trim_stat(&mut v.to_vec());
    let mut s = vec![0.0; v.len()];
    let mut ts: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for x in &mut s {
                *x = v[r.random_range(0..v.len())];
            }
            let (a, b) = trim_stat(&mut s);
            let t = ((a - m) / b).abs();
            if t.is_nan() { 0.0 } else { t }
        })
        .collect();
    ts.sort_by(f64::total_cmp);
    let t = at(&ts, c);
    (m - t * se, m + t * se)
}
