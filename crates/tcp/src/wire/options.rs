//! TCP options (RFC 9293, section 3.2; RFC 7323; RFC 2018).

use crate::Seq;

/// The two values of a timestamps option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock (TSval).
    pub value: u32,
    /// The receiver's clock, as the sender has last seen it (TSecr).
    pub echo: u32,
}

/// What the options of a segment say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The last timestamps option.
    pub timestamps: Option<Timestamps>,
    /// Whether there are SACK blocks.
    pub has_sack: bool,
    /// Beginning and end of the block, if there is only one.
    pub only_block: Option<(Seq, Seq)>,
    /// Whether there is an option of any other kind, or one whose length is wrong.
    pub is_irregular: bool,
}

const END: u8 = 0;
const NOP: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const TIMESTAMPS_LEN: u8 = 10;

/// The timestamps option as every usual TCP sends it: two NOPs before it align its values (RFC 7323, appendix A).
pub const ALIGNED_TIMESTAMPS: [u8; 4] = [NOP, NOP, TIMESTAMPS, TIMESTAMPS_LEN];

impl Options {
    /// Reads the options of a header: at most 40 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Options {
        match bytes {
            [] => Options::default(),
            [a, b, c, d, values @ ..] if [*a, *b, *c, *d] == ALIGNED_TIMESTAMPS && values.len() == 8 => {
                Options { timestamps: timestamps(values), ..Options::default() }
            }
            _ => Options::parse_each(bytes),
        }
    }

    fn parse_each(mut bytes: &[u8]) -> Options {
        let mut found = Options::default();
        loop {
            match bytes {
                // What comes after the end of the list is padding.
                [] | [END, ..] => return found,
                [NOP, rest @ ..] => bytes = rest,
                [kind, len, rest @ ..] => {
                    let Some((value, after)) = usize::from(*len).checked_sub(2).and_then(|n| rest.split_at_checked(n))
                    else {
                        return Options { is_irregular: true, ..found };
                    };
                    found.note(*kind, value);
                    bytes = after;
                }
                [_] => return Options { is_irregular: true, ..found },
            }
        }
    }

    fn note(&mut self, kind: u8, value: &[u8]) {
        match kind {
            TIMESTAMPS if value.len() == 8 => self.timestamps = timestamps(value),
            SACK if !value.is_empty() && value.len().is_multiple_of(8) => {
                self.only_block = if self.has_sack { None } else { block(value) };
                self.has_sack = true;
            }
            _ => self.is_irregular = true,
        }
    }
}

fn timestamps(values: &[u8]) -> Option<Timestamps> {
    let (value, echo) = two_words(values)?;
    Some(Timestamps { value, echo })
}

/// The block of an option that has no other.
fn block(value: &[u8]) -> Option<(Seq, Seq)> {
    let (from, to) = two_words(value).filter(|_| value.len() == 8)?;
    Some((Seq(from), Seq(to)))
}

fn two_words(bytes: &[u8]) -> Option<(u32, u32)> {
    let (first, second) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*first), u32::from_be_bytes(*second.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Option<Timestamps> = Some(Timestamps { value: 0x01020304, echo: 0x05060708 });

    #[test]
    fn timestamps_in_any_place() {
        let aligned = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        let last = [1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        for bytes in [aligned, last] {
            assert_eq!(Options::parse(&bytes), Options { timestamps: BOTH, ..Options::default() });
        }
    }

    #[test]
    fn sack_blocks_are_seen_beside_timestamps() {
        let bytes = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let only_block = Some((Seq(1), Seq(2)));
        assert_eq!(
            Options::parse(&bytes),
            Options { timestamps: BOTH, has_sack: true, only_block, is_irregular: false }
        );
    }

    #[test]
    fn of_several_sack_blocks_none_is_the_only_one() {
        let one = [5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let two_in_one = [5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
        assert_eq!(Options::parse(&one).only_block, Some((Seq(1), Seq(2))));
        for bytes in [&two_in_one[..], &[one, one].concat()] {
            let found = Options::parse(bytes);
            assert!(found.has_sack && found.only_block.is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn wrong_lengths_and_other_kinds_are_irregular() {
        let irregular: [&[u8]; 8] = [
            &[8],
            &[8, 1],
            &[8, 0],
            &[8, 10, 1],
            &[8, 9, 1, 2, 3, 4, 5, 6, 7],
            &[5, 2],
            &[5, 9, 1, 2, 3, 4, 5, 6, 7],
            &[2, 4, 5, 180],
        ];
        for bytes in irregular {
            assert!(Options::parse(bytes).is_irregular, "{bytes:?}");
        }
        assert_eq!(Options::parse(&[0, 2, 77]), Options::default(), "what comes after the end is padding");
    }
}
