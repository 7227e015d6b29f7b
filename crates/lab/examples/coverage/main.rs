mod candidates;
mod procedure;
mod samples;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
fn main() {
    if std::env::args().nth(2).is_some() {
        return stopping();
    }
    let trials: usize = std::env::args().nth(1).map_or(1000, |a| a.parse().unwrap());
    for n in [6, 8, 10, 14, 20, 30] {
        println!("n = {n}");
        for (name, method) in candidates::METHODS {
            let mut line = format!("{name:20}");
            for (_, noise) in samples::NOISES {
                let (mut held, mut width) = (0, 0.0);
                let mut rng = ChaCha8Rng::seed_from_u64(7);
                let mut own = ChaCha8Rng::seed_from_u64(8);
                for _ in 0..trials {
                    let logs: Vec<f64> =
                        samples::rounds(noise, 1.0, 0.02, n, &mut rng).iter().map(|(a, b)| (a / b).ln()).collect();
                    let (low, high) = method(&logs, 0.95, &mut own);
                    held += (low <= 0.0 && 0.0 <= high) as usize;
                    width += (high - low) / 2.0 / trials as f64;
                }
                line += &format!("  {:5.1} ({:4.1})", 100.0 * held as f64 / trials as f64, 100.0 * width);
            }
            println!("{line}");
        }
    }
}

fn stopping() {
    use sidestep_lab::stats::*;
    let trials: u64 = std::env::args().nth(1).map_or(1000, |a| a.parse().unwrap());
    let t = std::time::Instant::now();
    let v: indexmap::IndexMap<u32, f64> = (0..30).map(|i| (i, 1.0 + (i as f64 * 7.3).sin())).collect();
    let b = v.keys().map(|i| (*i, 5.0)).collect();
    for _ in 0..1000 {
        std::hint::black_box(compare(&v, &b, sidestep_lab::result::Better::Lower, 0.95));
    }
    println!("{:?} each", t.elapsed() / 1000);
    for least in [6, 10] {
        for precision in [0.01, 0.02, 0.025] {
            let mut line = format!("least {least} precision {precision}:");
            for (_, noise) in [samples::NOISES[2], samples::NOISES[4]] {
                let rule = Rule { precision, confidence: 0.95, least_rounds: least, most_rounds: 30 };
                let all: Vec<Comparison> = (0..trials).map(|s| procedure::cell(rule, noise, 1.0, s)).collect();
                let same = all.iter().filter(|c| c.verdict == Verdict::NoDifference).count();
                let mean = all.iter().map(|c| c.rounds).sum::<usize>() as f64 / trials as f64;
                line += &format!("  {:5.1} ({mean:4.1})", 100.0 * same as f64 / trials as f64);
            }
            println!("{line}");
        }
    }
}
