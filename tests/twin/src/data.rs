//! The bytes that programs send, and how received bytes are printed.

use sidestep_posix::pattern::mix;

/// Bytes `from..from + len` of the data of step `step`: printable, so that none looks like a byte of a [`fill`].
pub fn bytes(step: usize, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| b' ' + (mix((step as u64) << 32 | i as u64) % 95) as u8).collect()
}

/// Bytes `from..from + len` of a fill: groups of four that count, all with the highest bit set.
pub fn fill(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| 0x80 | (((i / 4) >> (7 * (i % 4))) & 0x7f) as u8).collect()
}

/// Splits the bytes of a drain: ordinary bytes, and the range of a fill that they contain.
pub fn split(got: &[u8]) -> Result<(Vec<u8>, Option<std::ops::Range<usize>>), String> {
    let (filled, ordinary): (Vec<u8>, Vec<u8>) = got.iter().partition(|&&b| b & 0x80 != 0);
    if filled.is_empty() {
        return Ok((ordinary, None));
    }
    let begins = |&from: &usize| filled[..filled.len().min(12)] == fill(from, filled.len().min(12));
    let guess = |skip: usize| {
        let group = filled.get(skip..skip + 4)?;
        let index = group.iter().enumerate().map(|(i, &b)| ((b & 0x7f) as usize) << (7 * i)).sum::<usize>();
        (index * 4).checked_sub(skip)
    };
    let from = (0..4).filter_map(guess).find(begins).ok_or("bytes of a fill, but of no place in it")?;
    match fill(from, filled.len()).iter().zip(&filled).position(|(want, got)| want != got) {
        None => Ok((ordinary, Some(from..from + filled.len()))),
        Some(i) => Err(format!("the fill is broken after {i} bytes, {} in all", from + i)),
    }
}

/// Prints short byte strings as they are, longer ones by length, ends and hash.
pub fn show(bytes: &[u8]) -> String {
    let text = |part: &[u8]| part.escape_ascii().to_string();
    match bytes.len() {
        0..=24 => format!("\"{}\"", text(bytes)),
        n => format!("\"{}..{}\" {n}/{:016x}", text(&bytes[..8]), text(&bytes[n - 8..]), hash(bytes)),
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_is_found_again_wherever_it_was_cut() {
        for from in [0, 1, 2, 3, 7, 514, 70_001] {
            let got = [&b"before"[..], &fill(from, 3000), b"after"].concat();
            assert_eq!(split(&got), Ok((b"beforeafter".to_vec(), Some(from..from + 3000))));
        }
        assert_eq!(split(b"only this"), Ok((b"only this".to_vec(), None)));
    }

    #[test]
    fn a_fill_with_a_hole_is_broken() {
        let got = [fill(0, 1000), fill(1001, 500)].concat();
        assert!(split(&got).unwrap_err().contains("after 1000 bytes"));
    }

    #[test]
    fn what_steps_send_is_no_fill() {
        assert!(bytes(3, 0, 5000).iter().all(|b| b & 0x80 == 0));
        assert_eq!(bytes(3, 0, 50)[20..], bytes(3, 20, 30));
    }
}
