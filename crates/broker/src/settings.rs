//! The values of settings, as spelled in options, variables and the configuration file.

use sidestep_abi::env::RING_SIZES;
use std::fmt;
use std::str::FromStr;

/// A text that is no value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum SettingError {
    #[error("expected {expected}, found '{found}'")]
    Unexpected { expected: &'static str, found: String },
    #[error("{0} is not a power of two; the next one is {next}", next = .0.next_power_of_two())]
    NotPowerOfTwo(u32),
    #[error("{0} is out of bounds: a ring has {least} to {most} bytes", least = RING_SIZES.start(), most = RING_SIZES.end())]
    OutOfBounds(u64),
}

fn unexpected(expected: &'static str, found: &str) -> SettingError {
    SettingError::Unexpected { expected, found: found.into() }
}

/// How long a thread spins before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// As recent waits have shown to pay, and only while a processor is idle.
    Auto,
    /// Never.
    Off,
    /// This long, in microseconds.
    Microseconds(u32),
}

impl FromStr for Spin {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Spin, SettingError> {
        /// Spinning for more than a second only burns processor time.
        const LONGEST: u32 = 1_000_000;
        match text {
            "auto" => Ok(Spin::Auto),
            "off" => Ok(Spin::Off),
            _ => match text.parse() {
                Ok(us) if us <= LONGEST => Ok(Spin::Microseconds(us)),
                _ => Err(unexpected("auto, off or a number of microseconds up to 1000000", text)),
            },
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spin::Auto => f.write_str("auto"),
            Spin::Off => f.write_str("off"),
            Spin::Microseconds(us) => us.fmt(f),
        }
    }
}

/// How much traffic makes a connection worth an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeAfter {
    /// Operations in quick succession.
    Auto,
    /// This many bytes, by either carrier.
    Bytes(u64),
    /// This many operations, however far apart.
    Ops(u32),
}

impl FromStr for UpgradeAfter {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<UpgradeAfter, SettingError> {
        let parsed = match text.strip_suffix("ops") {
            None if text == "auto" => Some(UpgradeAfter::Auto),
            Some(count) => count.parse().ok().map(UpgradeAfter::Ops),
            None => bytes(text).map(UpgradeAfter::Bytes),
        };
        parsed.ok_or_else(|| unexpected("auto, bytes (65536, 64K) or operations (4ops)", text))
    }
}

impl fmt::Display for UpgradeAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeAfter::Auto => f.write_str("auto"),
            UpgradeAfter::Bytes(n) => n.fmt(f),
            UpgradeAfter::Ops(n) => write!(f, "{n}ops"),
        }
    }
}

/// How io_uring is treated in programs that use it through libc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoUring {
    /// Only connections that it touches stay on the kernel.
    Follow,
    /// io_uring_setup(2) fails.
    Refuse,
}

impl FromStr for IoUring {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<IoUring, SettingError> {
        match text {
            "follow" => Ok(IoUring::Follow),
            "refuse" => Ok(IoUring::Refuse),
            _ => Err(unexpected("follow or refuse", text)),
        }
    }
}

impl fmt::Display for IoUring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoUring::Follow => "follow",
            IoUring::Refuse => "refuse",
        })
    }
}

/// Bytes of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize(u32);

impl FromStr for RingSize {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<RingSize, SettingError> {
        let size = bytes(text).ok_or_else(|| unexpected("a number of bytes (262144, 256K, 1M)", text))?;
        match u32::try_from(size).ok().filter(|size| RING_SIZES.contains(size)) {
            Some(size) if size.is_power_of_two() => Ok(RingSize(size)),
            Some(size) => Err(SettingError::NotPowerOfTwo(size)),
            None => Err(SettingError::OutOfBounds(size)),
        }
    }
}

impl fmt::Display for RingSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of bytes: `123`, `64K`, `16M`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    // parse() would accept a sign.
    let plain = digits.bytes().all(|c| c.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_values_come_back_as_the_library_reads_them() {
        for (text, canonical) in [("auto", "auto"), ("off", "off"), ("50", "50")] {
            assert_eq!(text.parse::<Spin>().expect(text).to_string(), canonical);
        }
        for (text, canonical) in [("auto", "auto"), ("64K", "65536"), ("0ops", "0ops"), ("4ops", "4ops"), ("0", "0")] {
            assert_eq!(text.parse::<UpgradeAfter>().expect(text).to_string(), canonical);
        }
        for text in ["follow", "refuse"] {
            assert_eq!(text.parse::<IoUring>().expect(text).to_string(), text);
        }
        for (text, canonical) in [("4096", "4096"), ("256k", "262144"), ("16M", "16777216")] {
            assert_eq!(text.parse::<RingSize>().expect(text).to_string(), canonical);
        }
    }

    #[test]
    fn bad_values_are_errors() {
        for bad in ["", "on", "-1", "1.5", "2000000"] {
            assert!(bad.parse::<Spin>().is_err(), "{bad}");
        }
        for bad in ["", "ops", "-4ops", "4 ops", "+1", "K", "99999999999999999999"] {
            assert!(bad.parse::<UpgradeAfter>().is_err(), "{bad}");
        }
        for bad in ["", "4095", "5000", "32M", "1G", "-4096", "18446744073709551615M"] {
            assert!(bad.parse::<RingSize>().is_err(), "{bad}");
        }
        assert!("off".parse::<IoUring>().is_err());
        assert_eq!("5000".parse::<RingSize>(), Err(SettingError::NotPowerOfTwo(5000)));
    }

    #[test]
    fn errors_say_what_is_expected() {
        let spin = "fast".parse::<Spin>().expect_err("no number").to_string();
        assert_eq!(spin, "expected auto, off or a number of microseconds up to 1000000, found 'fast'");
        let size = |text: &str| text.parse::<RingSize>().expect_err(text).to_string();
        assert_eq!(size("5000"), "5000 is not a power of two; the next one is 8192");
        assert_eq!(size("32M"), "33554432 is out of bounds: a ring has 4096 to 16777216 bytes");
    }
}
