//! Text without an allocator and without core::fmt.

/// Writes `n` in decimal.
pub fn decimal(mut n: u64, out: &mut [u8]) -> &[u8] {
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 || at == 0 {
            return &out[at..];
        }
    }
}

/// A line that grows. Text that does not fit is cut.
pub struct Line {
    bytes: [u8; 4096],
    len: usize,
}

impl Line {
    pub const fn new() -> Line {
        Line { bytes: [0; 4096], len: 0 }
    }

    pub fn push(&mut self, text: &[u8]) -> &mut Line {
        let n = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&text[..n]);
        self.len += n;
        self
    }

    pub fn number(&mut self, n: u64) -> &mut Line {
        let mut digits = [0; 20];
        self.push(decimal(n, &mut digits))
    }

    /// Appends a JSON string with its quotes.
    pub fn quoted(&mut self, text: &[u8]) -> &mut Line {
        self.push(b"\"");
        for byte in text {
            match byte {
                b'"' | b'\\' => self.push(&[b'\\', *byte]),
                0..0x20 => self.push(b"?"),
                _ => self.push(&[*byte]),
            };
        }
        self.push(b"\"")
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_quoted_text() {
        let mut line = Line::new();
        line.number(0).push(b" ").number(u64::MAX).push(b" ").quoted(b"a\"\\\n\xff");
        assert_eq!(line.bytes(), b"0 18446744073709551615 \"a\\\"\\\\?\xff\"");
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        let mut line = Line::new();
        for _ in 0..5000 {
            line.push(b"x");
        }
        assert_eq!(line.bytes().len(), 4096);
    }
}
